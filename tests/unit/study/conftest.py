"""Results of two encoders with three seeds, small enough to reckon with by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from components.benchmarks.scoring.benchmark import Correlation, Scores
from components.core.settings import Settings
from components.evaluation.results import Folders, Report, Result, write_results
from components.study.results import Results, read_results

AO, LOSS, TAU = "paraphrased_retrieval/ao_at_10", "geometry/caption_difference/distance", "caption_ratings/tau_c"
QUERIES = 200


def write_encoder(folders: Folders, name: str, seed: int, gain: float) -> None:
    """Values per query: those of the seed, `gain` higher; a distance `gain` lower; a correlation."""
    base = np.random.default_rng(seed).random(QUERIES) / 2
    gold = np.arange(QUERIES, dtype=np.float64) % 5
    noise = np.random.default_rng(7 + seed).normal(0, 2, QUERIES)
    correlation = Correlation("spearman", gold, (0.1 + gain) * gold + noise)
    scores = Scores({AO: base + gain, LOSS: base - gain}, correlations={TAU: correlation})
    metrics = {
        metric: Result(value=float(scores.values[metric].mean()), higher_is_better=metric == AO)
        for metric in (AO, LOSS)
    }
    metrics[TAU] = Result(value=0.0, higher_is_better=True)
    report = Report(encoder=name, protocol="p", data_hash="d", encoder_sha256=f"{name}{seed}", metrics=metrics)
    write_results(report, scores, folders.metrics, folders.per_query)


@pytest.fixture
def seeds(tmp_path: Path) -> dict[int, Folders]:
    """Seed -> folders of `base` and `better`, whose gain is 0.1, 0.2 and 0.3."""
    found = {}
    for seed in range(3):
        folders = Folders(reports=tmp_path / str(seed))
        write_encoder(folders, "base", seed, 0.0)
        write_encoder(folders, "better", seed, 0.1 * (seed + 1))
        found[seed] = folders
    return found


@pytest.fixture
def results(seeds: dict[int, Folders], settings: Settings) -> Results:
    """Them, read."""
    return read_results(["base", "better"], list(seeds.values()), settings.evaluate)
