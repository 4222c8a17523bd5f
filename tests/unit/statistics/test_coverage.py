"""How often 95% intervals hold the truth; docs/statistics.md."""

from __future__ import annotations

import math
from collections.abc import Callable
from zlib import crc32

import numpy as np
import pytest
from scipy.stats import binom

from components.evaluation.scoring.intervals import (
    Interval,
    difference_of_shares,
    interval_over_seeds,
    mean_interval,
    paired_interval,
)
from tests.support.simulated import EFFORTS, MEAN, Rate, draws, encoders, hits, rate

Draw = Callable[[np.random.Generator], Interval]


def _coverage(what: str, draw: Draw, truth: float, count: int) -> Rate:
    """The share of intervals that hold the truth; none has a length of 0."""
    spans = [draw(generator) for generator in draws(count, crc32(what.encode()))]
    assert all(span.low < span.high and span.low <= span.value <= span.high for span in spans)
    return rate(f"coverage: {what}", (span.low <= truth <= span.high for span in spans))


@pytest.mark.parametrize("share", [0.5, 0.7, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("size", [32, 100, 300, 1000, 5000])
def test_intervals_of_shares_hold_the_truth(size: int, share: float) -> None:
    chances = {hit: float(binom.pmf(hit, size, share)) for hit in range(size + 1)}
    held = {hit: mean_interval((np.arange(size) < hit) * 1.0) for hit, chance in chances.items() if chance > 1e-7}
    found = sum(chances[hit] for hit, span in held.items() if span.low <= share <= span.high)
    print(f"{100 * found:6.2f} % exactly  coverage: {share:.0%} of {size} queries")
    # A share of n queries takes n + 1 values: where few queries fail, no interval covers 95% everywhere.
    least, most = (0.93, 0.97) if size * (1 - share) > 2 else (0.92, 0.98)
    assert least <= found <= most


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize(
    ("share", "differ", "gain"), [(0.9, 0.06, 0.0), (0.9, 0.11, 0.03), (0.5, 0.3, 0.1), (0.99, 0.02, 0.0)]
)
@pytest.mark.parametrize("size", [32, 300, 2000])
def test_intervals_of_differences_of_shares_hold_the_truth(
    size: int, share: float, differ: float, gain: float, effort: int
) -> None:
    found = _coverage(
        f"difference of shares of {size} queries, {differ:.0%} differ, gain {gain}",
        lambda generator: paired_interval(*hits(generator, size, share, differ, gain)[::-1]),
        gain,
        200 * effort,
    )
    assert found.within(0.93, 0.97 if size * differ > 20 else 1)


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize(("first", "second"), [((0.9, 100), (0.95, 1000)), ((0.05, 50), (0.05, 5000))])
def test_intervals_of_shares_of_other_cases_hold_the_truth(
    first: tuple[float, int], second: tuple[float, int], effort: int
) -> None:
    def draw(generator: np.random.Generator) -> Interval:
        found = [(generator.binomial(size, share) / size, size) for share, size in (first, second)]
        return difference_of_shares(*found[0], *found[1])

    truth = first[0] - second[0]
    assert _coverage(f"share of {first} less that of {second}", draw, truth, 400 * effort).within(0.93, 0.97)


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("kind", ["values", "hits"])
@pytest.mark.parametrize("likeness", [0.1, 0.8])
@pytest.mark.parametrize("unequal", [False, True])
@pytest.mark.parametrize("pictures", [20, 32, 100])
def test_intervals_of_pictures_with_several_queries_hold_the_truth(
    pictures: int, unequal: bool, likeness: float, kind: str, effort: int
) -> None:
    def draw(generator: np.random.Generator) -> Interval:
        sizes = generator.choice([1, 1, 2, 5, 20], pictures) if unequal else np.full(pictures, 5)
        owner = np.arange(pictures).repeat(sizes)
        common, own = generator.normal(size=pictures)[owner], generator.normal(size=len(owner))
        score = math.sqrt(likeness) * common + math.sqrt(1 - likeness) * own
        return mean_interval(score if kind == "values" else (score < 0) * 1.0, pictures=owner)

    size = "one to 20" if unequal else "five"
    what = f"{kind} of {pictures} pictures with {size} queries, likeness {likeness}"
    assert _coverage(what, draw, 0.5 * (kind == "hits"), 200 * effort).within(0.93, 0.97)


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize(("pictures", "queries"), [(20, 60), (32, 64), (100, 300)])
def test_intervals_of_queries_about_two_pictures_hold_the_truth(pictures: int, queries: int, effort: int) -> None:
    every = np.stack(np.triu_indices(pictures, 1), 1)

    def draw(generator: np.random.Generator) -> Interval:
        chosen = every[generator.choice(len(every), queries, replace=False)]
        level = generator.normal(size=pictures)
        return mean_interval(level[chosen].sum(axis=1) + generator.normal(size=queries), pictures=chosen)

    what = f"{queries} queries about two of {pictures} pictures"
    assert _coverage(what, draw, 0, 400 * effort).within(0.93, 0.97)


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize(("groups", "size"), [(50, 2), (33, 3), (20, 5), (10, 10), (4, 50)])
def test_intervals_of_means_of_groups_hold_the_truth(groups: int, size: int, effort: int) -> None:
    group = np.arange(groups).repeat(size)
    found = _coverage(
        f"{groups} groups of {size} rows",
        lambda generator: mean_interval(np.sin(group) + generator.normal(size=len(group)), strata=group),
        float(np.sin(np.arange(groups)).mean()),
        400 * effort,
    )
    assert found.within(0.93, 0.97)


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("size", [20, 32, 300, 5000])
def test_intervals_of_agreement_hold_the_truth(size: int, effort: int) -> None:
    what = f"agreement of {size} queries"
    found = _coverage(what, lambda generator: mean_interval(encoders(generator, 1, size, 0)[0]), MEAN, 400 * effort)
    assert found.within(0.93, 0.97)


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("left", [0.0, 1.0])
@pytest.mark.parametrize(
    ("seeds", "ratio"), [*((3, ratio) for ratio in (0, 0.5, 1, 2, 4, 8)), *((5, ratio) for ratio in (0, 2, 8))]
)
def test_intervals_over_seeds_hold_the_truth(seeds: int, ratio: float, left: float, effort: int) -> None:
    """Seeds vary `ratio` times as much as the mean of the queries; with `left` the queries' values do by seed too."""
    size = 100

    def draw(generator: np.random.Generator) -> Interval:
        shift = generator.normal(size=(seeds, 1)) * ratio * math.sqrt((1 + left**2) / size)
        values = generator.normal(size=size) + shift + left * generator.normal(size=(seeds, size))
        return interval_over_seeds(list(values), [np.zeros(size)] * seeds)

    what = f"{seeds} seeds that vary {ratio} times as much as queries, with {left} left"
    assert _coverage(what, draw, 0, 200 * effort).within(0.93, 0.97)
