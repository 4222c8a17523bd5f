"""Pareto plot and curves: what is drawn, and what is said where nothing is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.benchmarks.scoring.bootstrap import Interval
from components.report.comparison import Cell, Comparison
from components.report.plots import curve_names, curve_plot, frontier, pareto_plot
from components.tracking.curves import Curves

PRIMARY = "paraphrased_retrieval/ao_at_10"
VALUES: dict[str, Sequence[float]] = {
    PRIMARY: (0.2, 0.6, 0.4),
    "zero_shot/top1": (0.7, 0.5, 0.6),
}


def _comparison(values: Mapping[str, Sequence[float]] = VALUES, names: Sequence[str] = "abc") -> Comparison:
    def row(metric: str) -> dict[str, Cell]:
        found = dict(zip(names, values[metric], strict=True))
        return {name: Cell(Interval(value, value - 0.1, value + 0.1), None, True) for name, value in found.items()}

    return Comparison(tuple(names), {metric: row(metric) for metric in values})


def test_the_frontier_by_hand() -> None:
    points = np.array([[1.0, 5.0], [3.0, 3.0], [2.0, 2.0], [5.0, 1.0], [3.0, 1.0], [1.0, 4.0]])
    assert frontier(points) == [0, 1, 3]
    assert frontier(np.array([[1.0, 1.0], [1.0, 1.0]])) == [0, 1]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
def test_the_frontier_dominates_all_others_and_not_itself(raw: list[tuple[int, int]]) -> None:
    points = np.array(raw, dtype=np.float64)
    kept = frontier(points)

    def dominates(a: int, b: int) -> bool:
        return bool((points[a] >= points[b]).all() and (points[a] > points[b]).any())

    assert not any(dominates(a, b) for a in kept for b in kept)
    assert all(any(dominates(a, b) for a in kept) for b in range(len(points)) if b not in kept)


def test_the_pareto_plot_fills_the_frontier_alone_and_names_it() -> None:
    plot = pareto_plot(_comparison(), PRIMARY)
    assert plot.figure is not None
    line, *points = plot.figure.data
    assert list(line.x) == pytest.approx([50, 60, 70])
    assert [(point.name, point.x[0], point.y[0]) for point in points] == [
        ("a", pytest.approx(70), pytest.approx(20)),
        ("b", pytest.approx(50), pytest.approx(60)),
        ("c", pytest.approx(60), pytest.approx(40)),
    ]
    assert plot.figure.layout.showlegend
    worse = VALUES | {"zero_shot/top1": (0.7, 0.8, 0.6)}
    plot = pareto_plot(_comparison(worse), PRIMARY)
    assert plot.figure is not None
    assert [point.marker.symbol.endswith("-open") for point in plot.figure.data[1:]] == [True, False, True]
    assert plot.notes[0].endswith("(b).")


def test_many_points_of_the_pareto_plot_look_different() -> None:
    names = [f"e{number}" for number in range(18)]
    values = {name: [number / 20 for number in range(18)] for name in (PRIMARY, "zero_shot/top1")}
    plot = pareto_plot(_comparison(values, names), PRIMARY)
    assert plot.figure is not None
    markers = {(point.marker.color, point.marker.symbol.removesuffix("-open")) for point in plot.figure.data[1:]}
    assert len(markers) == 18
    # Without zero-shot accuracy there is no plot.
    plot = pareto_plot(_comparison({PRIMARY: (0.1, 0.2, 0.3)}), PRIMARY)
    assert (plot.figure, plot.notes) == (None, ("zero_shot/top1 was not measured.",))


def test_curves_begin_with_the_total_loss_and_missing_ones_are_named() -> None:
    steps = [(0, 2.0), (1, 1.0)]
    curves = Curves(
        {"b": {"loss/l1": steps, "loss/total": steps}, "c": {"loss/total": steps[:1]}},
        {"a": "no tracked run trained it"},
    )
    plot = curve_plot(curves, "abc")
    assert curve_names(curves) == ["loss/total", "loss/l1"]
    assert plot.figure is not None
    drawn = [(line.name, line.meta["choice"], line.mode) for line in plot.figure.data if line.visible]
    assert drawn == [("b", "loss/total", "lines"), ("c", "loss/total", "markers")]
    assert [chip.encoder for chip in plot.chips] == ["b", "c"]
    assert plot.notes == ("No curves of a: no tracked run trained it.",)
    plot = curve_plot(Curves({}, {"a": "no tracked run trained it", "b": "no tracked run trained it"}), "ab")
    assert (plot.figure, plot.notes) == (None, ("No curves of a, b: no tracked run trained it.",))
