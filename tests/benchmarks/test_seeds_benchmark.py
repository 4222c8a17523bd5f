"""The seeds' benchmark trains what it says it trains; what comes out, only a run of an hour can say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import seeds
from components.core.settings import Settings

AO = "paraphrased_retrieval/ao_at_10"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the stages were asked for, each of which only leaves the file by which it is known to be done."""
    found: list[tuple[Any, ...]] = []

    def leave(path: Path, *call: Any) -> None:
        path.parent.mkdir(parents=True)
        path.write_text("{}")
        found.append(call)

    def base(settings: Settings, output: Path, _pairs: Path) -> None:
        leave(output / "run.json", "base", settings.train.seed, settings.train.precision)

    def embed(_settings: Settings, output: Path, _pairs: Path, start: Path) -> None:
        leave(output / "manifest.json", "embed", start.parts[-3:])

    def train(settings: Settings, name: str, files: Any) -> None:
        chosen, run = settings.train, files.models / name / "run.json"
        places = chosen.checkpoint_dir.parent.name, files.base.parts[-3], files.embeddings.parts[-2]
        leave(run, "train", chosen.seed, chosen.precision, *places, str(files.validated))

    def evaluate(_settings: Settings, encoder: str, folders: Any) -> None:
        found.append(("evaluate", folders.reports.parent.name, encoder))
        folders.metrics.mkdir(parents=True, exist_ok=True)
        (folders.metrics / f"{encoder}.json").write_text("{}")

    for name, run in (("base", base), ("embed", embed), ("train", train), ("evaluate", evaluate)):
        monkeypatch.setattr(getattr(seeds, name), "run", run)
    return found


def test_bf16_trains_paraclip_alone_from_the_float32_bases(
    calls: list[tuple[Any, ...]], settings: Settings, tmp_path: Path
) -> None:
    seeds.run_seed(settings, 1, tmp_path, ["base", "paraclip"])
    assert calls == [
        ("base", 1, "fp32"),
        ("embed", ("1", "models", "base")),
        ("train", 1, "fp32", "1", "1", "1", "data/validated/paraclip"),
        ("evaluate", "1", "base"),
        ("evaluate", "1", "paraclip"),
    ]
    calls.clear()
    for _ in range(2):
        seeds.run_seed(settings, 1, tmp_path, ["base", "paraclip"])
        seeds.run_mixed(settings, 1, tmp_path)
    # Once, and with a state of its own: nothing goes on from the float32 run's checkpoints.
    assert calls == [
        ("train", 1, "bf16", "1-bf16", "1", "1", "data/validated/paraclip"),
        ("evaluate", "1-bf16", "paraclip"),
    ]
