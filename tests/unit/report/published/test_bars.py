"""Bars of published metrics, with encoders put together by their settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core.errors import InputError
from components.core.files import write_json
from components.encoders.adapter.sidecar import Sidecar
from components.evaluation.results import PublishedReport, Result
from components.report.published.bars import bars_of, page_of

VALUES = {"base": 0.1, "one": 0.2, "one_raw": 0.4, "two": 0.6}
SETTINGS = {
    "one": {"n": 1, "learnable": False},
    "one_raw": {"n": 1, "learnable": False},
    "two": {"n": 2, "learnable": False},
}


def _reports() -> list[PublishedReport]:
    return [
        PublishedReport(
            encoder=encoder, encoder_sha256="x", benchmark="b", version=1, protocol="p", data_hash="d", seconds=1,
            metrics={"b/top1": Result(value=value, higher_is_better=True)}
            | ({"b/delta": Result(value=-value, higher_is_better=True)} if encoder == "two" else {}),
        )
        for encoder, value in VALUES.items()
    ]  # fmt: skip


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for name, settings in SETTINGS.items():
        sidecar = Sidecar(
            name=name, model="m", architecture={}, quick_gelu=False, embed_dim=1, context_length=1, image_size=1,
            method="semclip", settings=settings,
        )  # fmt: skip
        write_json(tmp_path / name / "encoder.json", sidecar.model_dump())
    return tmp_path


def _bars(models: Path, *by: str) -> dict[str, list[float | None]]:
    figure = bars_of(_reports(), ["b/top1", "b/delta"], by, models)
    return {bar.name: [None if one is None else round(one) for one in bar.y] for bar in figure.data}


def test_a_bar_for_each_encoder_or_for_equal_settings(models: Path) -> None:
    assert _bars(models) == {"base": [10, None], "one": [20, None], "one_raw": [40, None], "two": [60, -60]}
    assert _bars(models, "n") == {"base": [10, None], "n 1": [30, None], "n 2": [60, -60]}
    assert _bars(models, "learnable") == {"base": [10, None], "learnable false": [40, -60]}
    assert "n 1, learnable false" in _bars(models, "n", "learnable")
    assert "one_raw" in page_of(bars_of(_reports(), ["b/top1"], [], models))


def test_metrics_and_settings_that_nobody_has_are_named(models: Path) -> None:
    with pytest.raises(InputError, match=r"--plot b/top2: no encoder has this metric"):
        bars_of(_reports(), ["b/top2"], [], models)
    with pytest.raises(InputError, match=r"--by tau: no encoder in .* has this setting"):
        _bars(models, "tau")
