"""Bars of results on published benchmarks, by encoder or by a setting of encoders."""

from __future__ import annotations

from math import isnan
from pathlib import Path

import pytest

from components.core.system.errors import InputError
from components.core.tables.files import write_json
from components.encoders.adapter.images import Preparation
from components.encoders.adapter.sidecar import Sidecar
from components.evaluation.scoring.results import PublishedReport, Result
from research.figures.bars import bars_of


def _report(encoder: str, **metrics: float) -> PublishedReport:
    found = {f"b/{name}": Result(value=value, higher_is_better=True) for name, value in metrics.items()}
    return PublishedReport(
        encoder=encoder, encoder_sha256="x", benchmark="b", version=1, protocol="p", data_hash="d", seconds=1.0,
        metrics=found,
    )  # fmt: skip


SCORED = [
    _report("base", top1=0.1), _report("one", top1=0.2), _report("one_raw", top1=0.4),
    _report("two", top1=0.6, delta=-0.6),
]  # fmt: skip


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for name, number in (("one", 1), ("one_raw", 1), ("two", 2)):
        settings = {"n": number, "learnable": False}
        sidecar = Sidecar(
            name=name, model="m", architecture={}, quick_gelu=False, embed_dim=1, context_length=1,
            preparation=Preparation(size=1), method="semclip", settings=settings,
        )  # fmt: skip
        write_json(tmp_path / name / "encoder.json", sidecar.model_dump())
    return tmp_path


def _bars(models: Path, *by: str) -> dict[str, list[float | None]]:
    figure = bars_of(SCORED, ["b/top1", "b/delta"], by, models)
    return {bar.name: [None if isnan(value) else round(value) for value in bar.x] for bar in figure.data}


def test_a_bar_for_each_encoder_or_equal_settings_and_unknown_ones_refused(models: Path) -> None:
    assert _bars(models) == {"base": [10, None], "one": [20, None], "one_raw": [40, None], "two": [60, -60]}
    assert _bars(models, "n") == {"base": [10, None], "n 1": [30, None], "n 2": [60, -60]}
    assert _bars(models, "learnable") == {"base": [10, None], "learnable false": [40, -60]}
    assert "n 1, learnable false" in _bars(models, "n", "learnable")
    assert "one_raw" in str(bars_of(SCORED, ["b/top1"], [], models))
    with pytest.raises(InputError, match=r"--plot b/top2: no encoder has this metric"):
        bars_of(SCORED, ["b/top2"], [], models)
    with pytest.raises(InputError, match=r"--by tau: no encoder in .* has this setting"):
        _bars(models, "tau")
