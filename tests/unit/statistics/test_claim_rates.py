"""How often a claim whose effect is at its bound is given a verdict; docs/statistics.md."""

from __future__ import annotations

import math

import numpy as np
import pytest

from components.core.settings import Settings
from research.claims.results import Results
from research.claims.rules import Claim, ClaimPart, judge
from tests.support.simulated import EFFORTS, draws, judged, rate

SIZE, SEEDS = 100, 3


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("ratio", [0, 2, 8])
def test_a_claim_at_its_bound_is_rarely_decided(ratio: float, parts: int, effort: int, settings: Settings) -> None:
    """Seeds vary `ratio` times as much as the mean of the queries, in each part on its own."""
    names = [f"b/m{part}" for part in range(parts)]
    comparisons = tuple(ClaimPart(metric=name, encoder="new", better_than="old", by=0.0) for name in names)
    claim = Claim(paper="p", says="s", parts=comparisons)
    verdicts = []
    for generator in draws(100 * effort, ratio, parts):
        shift = ratio / math.sqrt(SIZE) * generator.normal(size=(SEEDS, parts, 1))
        values = shift + generator.normal(size=(parts, SIZE)) + 0.5 * generator.normal(size=(SEEDS, parts, SIZE))
        found = {
            name: [judged(dict(zip(names, seed, strict=True))) for seed in of]
            for name, of in (("old", np.zeros_like(values)), ("new", values))
        }
        reports = {name: [one.report for one in of] for name, of in found.items()}
        scores = {name: [one.scores for one in of] for name, of in found.items()}
        verdicts.append(judge("claim", claim, Results(reports, scores, settings.evaluate)).verdict)
    what = f"claim of {parts} parts at its bound, seeds vary {ratio} times as much as queries"
    for verdict in ("holds", "does not hold"):
        assert rate(f"{verdict}: {what}", (one == verdict for one in verdicts)).at_most(0.03)
