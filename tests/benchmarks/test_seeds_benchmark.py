"""The seeds' benchmark trains what it says it trains; what comes out, only a run of an hour can say."""

from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.benchmarks.bootstrap import interval
from components.benchmarks.scores import Correlation, Scores
from components.core.settings import Settings
from components.evaluation.results import Folders, Report, Result, read_report, read_scores, write_results
from tests.benchmarks import seeds

AO, TAU = "paraphrased_retrieval/ao_at_10", "caption_ratings/tau_c"


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
        places = chosen.state.parent.name, files.base.parts[-3], files.embeddings.parts[-2]
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


@pytest.fixture
def runs(tmp_path: Path) -> list[Folders]:
    """What two seeds came to: values, a correlation, and pictures of two queries each."""
    made = []
    for seed in range(2):
        home = tmp_path / str(seed)
        folders = Folders(models=home / "models", embeddings=home / "embeddings", reports=home / "reports")
        pictures = {AO: np.arange(100) // 2}
        gold = np.arange(100) % 4
        correlations = {TAU: Correlation("tau_c", gold, gold + np.random.default_rng(seed).normal(0, 1, 100))}
        values = {AO: np.random.default_rng(0).random(100) + seed / 10}
        scores = Scores(values, pictures=pictures, correlations=correlations)
        metrics = {
            AO: Result(value=float(values[AO].mean()), higher_is_better=True),
            TAU: Result(value=0.4 + seed / 10, ci95=(0.3, 0.6 + seed / 10), higher_is_better=True),
        }
        report = Report(encoder="paraclip", protocol="p", data_hash="d", encoder_sha256=str(seed), metrics=metrics)
        write_results(report, scores, folders.metrics, folders.per_query)
        made.append(folders)
    return made


def test_values_are_averaged_by_query_and_correlations_by_seed(settings: Settings, runs: list[Folders]) -> None:
    found = seeds.averages(settings, "paraclip", runs)
    assert list(found) == [AO, TAU]
    first, second = found[AO].seeds
    assert second - first == pytest.approx(0.1)
    assert found[AO].mean.value == pytest.approx((first + second) / 2)
    assert found[AO].mean.low < found[AO].mean.value < found[AO].mean.high
    assert found[TAU].seeds == (0.4, 0.5)
    assert astuple(found[TAU].mean) == pytest.approx((0.45, 0.3, 0.65))


def test_intervals_are_of_resampled_pictures(settings: Settings, runs: list[Folders]) -> None:
    scores = seeds.averaged_scores("paraclip", runs)
    resampling = settings.evaluate.bootstrap, settings.evaluate.seed
    assert seeds.averages(settings, "paraclip", runs)[AO].mean == interval(
        scores.values[AO], *resampling, None, np.arange(100) // 2
    )


def test_differences_are_paired(settings: Settings, runs: list[Folders]) -> None:
    # Both seeds of this encoder are a tenth above those of the other.
    for run in runs:
        report = read_report("paraclip", run.metrics)
        scores = read_scores(report, run.per_query)
        better = replace(scores, values={AO: scores.values[AO] + 0.1})
        write_results(report.model_copy(update={"encoder": "better"}), better, run.metrics, run.per_query)
    found = seeds.differences(settings, "better", runs, "paraclip", runs)
    assert astuple(found[AO]) == pytest.approx((0.1, 0.1, 0.1))
    assert astuple(found[TAU]) == pytest.approx((0, 0, 0))
