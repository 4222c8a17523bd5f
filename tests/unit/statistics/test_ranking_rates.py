"""How often tables of equal encoders show a difference; docs/statistics.md."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from components.core.compute.metrics import Reals
from components.evaluation.benchmarks.project import find_benchmark
from components.evaluation.report.comparison import compare
from components.evaluation.scoring.benchmark import Scores
from components.evaluation.scoring.comparisons import AllPairs
from components.evaluation.scoring.ranking import rank
from components.evaluation.scoring.results import Report
from tests.support.simulated import EFFORTS, draws, encoders, judged, rate

METRIC = "paraphrased_retrieval/ao_at_10"


def _scored(name: str, values: Mapping[str, Reals]) -> tuple[Report, Scores]:
    found = judged(values)
    return found.report.model_copy(update={"encoder": name}), found.scores


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("count", [3, 6, 10])
def test_intervals_to_the_best_hold_for_all_encoders_at_once(count: int, effort: int) -> None:
    found = []
    for size in (100, 300, 1000):
        for generator in draws(20 * effort, count, size):
            values = dict(zip("abcdefghij", encoders(generator, count, size, 0.5), strict=False))
            found.append(any(span.excludes_zero for span in AllPairs.of(values).behind_best(1).values()))
    assert rate(f"an interval to the best of {count} equal encoders excludes 0", found).at_most(0.05)


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize(("count", "size", "share"), [(3, 300, 0.9), (6, 100, 0.0)])
def test_a_ranking_of_equals_rarely_shows_a_difference(count: int, size: int, share: float, effort: int) -> None:
    found = []
    for generator in draws(40 * effort, count, size):
        values = encoders(generator, count, size, 0.7, share)
        scored = [_scored(name, {METRIC: one}) for name, one in zip("abcdefghij", values, strict=False)]
        [ranking] = rank(scored, [find_benchmark("paraphrased_retrieval")], seed=0)
        found.append(any(one.groups != "a" or one.behind.excludes_zero for one in ranking.encoders))
    kind = "hits" if share else "agreement"
    assert rate(f"letters or intervals differ: {count} equal encoders, {size} queries, {kind}", found).at_most(0.05)


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize(("count", "size"), [(3, 300), (6, 100)])
def test_the_least_difference_of_a_ranking_is_found_in_eighty_percent(count: int, size: int, effort: int) -> None:
    found = []
    for generator in draws(40 * effort, count, size):
        values = dict(zip("abcdefghij", encoders(generator, count, size, 0.7), strict=False))
        values["a"] = values["a"] + AllPairs.of(values).least
        found.append(AllPairs.of(values).behind_best(1)["b"].high < 0)
    # It is that of the two encoders that differ most by query.
    assert rate(f"least difference found: {count} encoders, {size} queries", found).within(0.75, 0.92)


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize(("metrics", "others"), [(4, 1), (9, 2)])
@pytest.mark.parametrize("share", [0.0, 0.9])
def test_a_section_rarely_has_an_arrow_without_difference(share: float, metrics: int, others: int, effort: int) -> None:
    found = []
    for generator in draws(60 * effort, share, metrics):
        tables = [encoders(generator, others + 1, 300, 0.7, share) for _ in range(metrics)]
        scored = [
            _scored(str(one), {f"b/m{number}": table[one] for number, table in enumerate(tables)})
            for one in range(others + 1)
        ]
        cells = compare([report for report, _ in scored], [scores for _, scores in scored], 1, 0).cells
        found.append(any(cell.verdict for row in cells.values() for cell in row.values()))
    kind = "hits" if share else "agreement"
    what = f"an arrow in a section of {metrics} metrics and {others} equal encoders, {kind}"
    assert rate(what, found).at_most(0.05)
