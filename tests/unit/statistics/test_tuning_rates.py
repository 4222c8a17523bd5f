"""The gain that a search prints where nothing was gained; docs/statistics.md."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from components.core.settings import Settings
from components.core.tables.folders import VALIDATION
from components.core.tables.records import CAPTION_QUERIES
from components.evaluation.benchmarks.project import find_benchmark
from components.evaluation.scoring.benchmark import Scores
from components.evaluation.scoring.context import ProjectContext
from components.evaluation.scoring.results import DEFAULT
from components.evaluation.scoring.validation import ValidationScores
from tests.support.simulated import EFFORTS, draws, rate

METRIC, TRIALS, PICTURES = "paraphrased_retrieval/ao_at_10", 12 * 3, 400
FILE = "caption_queries.parquet"


def _validation(settings: Settings, values: dict[str, Any]) -> ValidationScores:
    """A benchmark that gives each encoder its values, one for each picture."""
    names = [f"image {number}" for number in range(PICTURES)]
    folder = DEFAULT.evaluation / VALIDATION
    folder.mkdir(parents=True, exist_ok=True)
    CAPTION_QUERIES.write(folder / FILE, {"image_id": names, "text": names, "register": ["plain"] * PICTURES})

    def score(context: ProjectContext) -> Scores:
        rows = context.read_shown(CAPTION_QUERIES, FILE)[1]
        return Scores({METRIC: values[context.under_test.name][rows]}, pictures={METRIC: rows // 2})

    benchmark = replace(find_benchmark("paraphrased_retrieval"), score=score)
    return ValidationScores(settings, [METRIC], [benchmark], names, np.eye(PICTURES, dtype=np.float32), Scores({}))


def _encoder(name: str) -> Any:
    return SimpleNamespace(sidecar=SimpleNamespace(name=name), embed_texts=None)


@pytest.mark.parametrize("effort", EFFORTS)
def test_the_gain_of_the_best_of_twelve_trials_is_none_where_the_truth_is_none(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effort: int
) -> None:
    monkeypatch.chdir(tmp_path)
    values: dict[str, Any] = {}
    unscored = _validation(settings, values)
    lucky, printed, written = [], [], []
    for generator in draws(8 * effort):
        base = generator.random(PICTURES)
        values |= {"base": base}
        values |= {str(trial): base + 0.3 * generator.normal(size=PICTURES) for trial in range(TRIALS)}
        scores = replace(unscored, start=unscored._half(_encoder("base"), 1)[0])
        found = [scores(_encoder(str(trial))) for trial in range(TRIALS)]
        best = max(found, key=lambda one: one.chosen[METRIC])
        lucky.append(best.chosen[METRIC] - scores(_encoder("base")).chosen[METRIC])
        printed.append(best.gain.value)
        written.append(best.gain.low > 0)
        assert best.gain.low < best.gain.value < best.gain.high
    mean, error = np.mean(printed), np.std(printed) / np.sqrt(len(printed))
    shown = f"{100 * mean:+.2f} ±{196 * error:.2f}"
    print(f"{100 * np.mean(lucky):+.2f} points of gain by the half that chose, {shown} shown; the truth is 0")
    assert np.mean(lucky) > 0.02
    assert abs(mean) < 4 * error + 0.002
    assert rate("a gain of 0 is shown and written", written).at_most(0.05)


def test_halves_share_no_picture_and_hold_all_of_them(settings: Settings, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    scores = _validation(settings, {"one": np.arange(PICTURES) * 1.0})
    first, second = (set(scores._half(_encoder("one"), half)[0].values[METRIC]) for half in (0, 1))
    assert (len(first), len(second), len(first | second)) == (200, 200, 400)
