"""Tests of several encoders at once: which pairs differ, and how far each is from the best of the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from components.core.compute.metrics import Indices, Reals
from components.evaluation.scoring.intervals import LEVEL, Estimate, Interval, estimate, student

_DRAWS, _FEW = 4000, 100
_CELLS = 4_000_000


def reach_of_all(estimates: Sequence[Estimate], level: float = LEVEL, seed: int = 0) -> float:
    """How many standard errors the ends of each interval are from its middle, so that all hold at once (max-T).

    The quantile of the largest of the standardised means under normal multipliers of the units, which keeps their
    correlations: twenty siblings of one encoder need less than twenty unrelated ones. Estimates are of the same units.
    """
    degrees = min(one.degrees for one in estimates)
    moving = [one.parts / np.sqrt(np.square(one.parts).sum()) for one in estimates if one.error]
    if len(moving) <= 1 or len(moving[0]) <= _FEW:
        # Multipliers of few units have too short tails: Bonferroni's level holds.
        return student(1 - (1 - level) / max(1, len(moving)), degrees)
    parts = np.stack(moving, axis=1)
    generator = np.random.default_rng(seed)
    rows = max(1, _CELLS // len(parts))
    drawn = [
        np.abs(generator.standard_normal((min(rows, _DRAWS - start), len(parts))) @ parts).max(axis=1)
        for start in range(0, _DRAWS, rows)
    ]
    # Few units have Student's tails in place of the multipliers' normal ones.
    normal = max(student(level), float(np.quantile(np.concatenate(drawn), level)))
    return student(math.erf(normal / math.sqrt(2)), degrees)


def behind_best(
    values: Mapping[str, Reals], sign: int, strata: Indices | None = None, pictures: Indices | None = None
) -> dict[str, Interval]:
    """Each encoder's mean less the best of the others' (Hsu 1984), all intervals at once at 95%.

    An encoder whose interval reaches 0 could be best. `sign` is -1 where a lower value is better; differences are in
    the metric's own direction.
    """
    pairs = list(combinations(values, 2))
    found = {pair: estimate(sign * (values[pair[0]] - values[pair[1]]), strata, pictures) for pair in pairs}
    reach = reach_of_all(list(found.values()))
    spans: dict[str, list[Interval]] = {name: [] for name in values}
    for (one, other), each in found.items():
        low, high = each.value - reach * each.error, each.value + reach * each.error
        spans[one].append(Interval(each.value, low, high))
        spans[other].append(Interval(-each.value, -high, -low))
    return {name: _signed(sign, min(of, key=lambda span: span.value), of) for name, of in spans.items()}


def _signed(sign: int, nearest: Interval, spans: Sequence[Interval]) -> Interval:
    low, high = min(span.low for span in spans), min(span.high for span in spans)
    return Interval(nearest.value, low, high) if sign > 0 else Interval(-nearest.value, -high, -low)
