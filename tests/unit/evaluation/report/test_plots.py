"""Plots and the terminal's table: drawn values, notes on missing ones, and comparisons of many encoders."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.evaluation.report.comparison import Comparison, print_comparison
from components.evaluation.report.plots import COLOURS, bars, frontier, marker_style, pareto_plot
from components.evaluation.scoring.intervals import Interval
from components.evaluation.scoring.result_table import Cell

PRIMARY = "paraphrased_retrieval/ao_at_10"
VALUES: dict[str, Sequence[float]] = {PRIMARY: (0.2, 0.6, 0.4), "zero_shot/top1": (0.7, 0.5, 0.6)}
METRICS = [f"benchmark/metric_at_{depth}" for depth in (1, 5, 10, 20, 50)]


def _comparison(values: Mapping[str, Sequence[float]] = VALUES, names: Sequence[str] = "abc") -> Comparison:
    def cell(name: str, value: float) -> Cell:
        delta = None if name == names[0] else Interval(0.1, 0.05, 0.15)
        return Cell(Interval(value, value - 0.02, value + 0.02), delta, higher_is_better=True)

    rows = {metric: dict(zip(names, found, strict=True)) for metric, found in values.items()}
    return Comparison(
        tuple(names), {metric: {name: cell(name, value) for name, value in row.items()} for metric, row in rows.items()}
    )


def _many(count: int) -> Comparison:
    """Each value names its encoder and metric: encoder 3 has 30.1 at metric 1."""
    names = ["base", *(f"encoder_{number}" for number in range(1, count))]
    numbers = range(count)
    return _comparison({name: [n / 10 + place / 1000 for n in numbers] for place, name in enumerate(METRICS, 1)}, names)


def test_no_value_is_cut_on_a_narrow_terminal_and_few_or_wide_ones_show_differences_side_by_side(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(count: int, width: int) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        print_comparison(_many(count), METRICS[0], METRICS)
        return capsys.readouterr().out

    for width in (80, 120):
        narrow = shown(9, width)
        assert "…" not in narrow
        assert max(map(len, narrow.splitlines())) <= width
        rows = [line for line in narrow.splitlines() if "encoder_3" in line]
        values = [value for row in rows for value in re.findall(r"(\d+\.\d) ±2\.0 ▲", row)]
        assert values == ["30.1", "30.2", "30.3", "30.4", "30.5"]
    assert all("+10.0 [+5.0, +15.0] ▲" in shown(count, width) for count, width in ((2, 80), (9, 500)))


def test_encoders_differ_in_colour_or_have_labels() -> None:
    coloured, labelled = (bars(_many(len(COLOURS) + more), METRICS, METRICS).data for more in (1, 2))
    assert len({trace.marker.color for trace in coloured}) == len(COLOURS) + 1
    assert all(list(trace.y) == METRICS for trace in coloured)
    assert [list(part) for part in labelled[3].y] == [METRICS, ["encoder_3"] * len(METRICS)]
    assert labelled[0].marker.color != labelled[1].marker.color == labelled[6].marker.color
    assert len({marker_style(number) for number in range(31)}) == 31


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
def test_the_frontier_dominates_all_others_and_not_itself(raw: list[tuple[int, int]]) -> None:
    points = np.array(raw, dtype=np.float64)
    kept = frontier(points)

    def dominates(a: int, b: int) -> bool:
        return bool((points[a] >= points[b]).all() and (points[a] > points[b]).any())

    assert not any(dominates(a, b) for a in kept for b in kept)
    assert all(any(dominates(a, b) for a in kept) for b in range(len(points)) if b not in kept)


def test_the_pareto_plot_fills_the_frontier_and_tells_many_points_apart() -> None:
    plot = pareto_plot(_comparison(), PRIMARY)
    line, *points = plot.figure.data
    assert list(line.x) == pytest.approx([50, 60, 70])
    assert [point.name for point in points] == ["a", "b", "c"]
    drawn = [number for point in points for number in (point.x[0], point.y[0])]
    assert drawn == pytest.approx([70, 20, 50, 60, 60, 40])
    plot = pareto_plot(_comparison(VALUES | {"zero_shot/top1": (0.7, 0.8, 0.6)}), PRIMARY)
    assert [point.marker.symbol.endswith("-open") for point in plot.figure.data[1:]] == [True, False, True]
    assert plot.notes[0].endswith("(b).")
    values = {metric: [number / 20 for number in range(18)] for metric in VALUES}
    plot = pareto_plot(_comparison(values, [f"e{number}" for number in range(18)]), PRIMARY)
    markers = {(point.marker.color, point.marker.symbol.removesuffix("-open")) for point in plot.figure.data[1:]}
    assert len(markers) == 18
    plot = pareto_plot(_comparison({PRIMARY: (0.1, 0.2, 0.3)}), PRIMARY)
    assert (plot.figure, plot.notes) == (None, ("zero_shot/top1 was not measured.",))
