"""Radar, Pareto plot and curves: what is drawn, and what is said where nothing is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.benchmarks.bootstrap import Interval
from components.report.comparison.comparison import Cell, Comparison
from components.report.comparison.families import explain, families
from components.report.plots.figures import curve_plot, pareto_plot, radar_plot
from components.report.plots.label_places import label_places
from components.report.plots.loss_curves import curve_names
from components.report.plots.pareto import frontier
from components.tracking.curves import Curves

PRIMARY = "paraphrased_retrieval/ao_at_10"
VALUES: dict[str, Sequence[float]] = {
    PRIMARY: (0.2, 0.6, 0.4),
    "paraphrased_retrieval/js_at_10": (0.4, 0.8, 0.6),
    "paraphrased_retrieval/ao_at_1": (0.0, 0.0, 0.0),
    "paraphrased_retrieval/tier_unseen/ao_at_10": (0.9, 0.9, 0.9),
    "geometry/uniformity": (-2.0, -1.0, -3.0),
    "geometry/modality_gap": (0.3, 0.1, 0.2),
    "only_deep/hit_at_50": (0.5, 0.6, 0.7),
    "zero_shot/top1": (0.7, 0.5, 0.6),
}
LOWER = {"geometry/modality_gap"}


def _comparison(values: Mapping[str, Sequence[float]] = VALUES, names: Sequence[str] = "abc") -> Comparison:
    def row(metric: str) -> dict[str, Cell]:
        found = dict(zip(names, values[metric], strict=True))
        return {
            name: Cell(Interval(value, value - 0.1, value + 0.1), None, metric not in LOWER)
            for name, value in found.items()
        }

    return Comparison(tuple(names), {metric: row(metric) for metric in values})


def test_a_family_is_the_mean_of_its_metrics_at_the_primary_depth() -> None:
    found, left_out = families(_comparison(), PRIMARY)
    values = {family.name: list(family.values.values()) for family in found}
    assert values["paraphrased_retrieval"] == pytest.approx([0.3, 0.7, 0.5])
    assert values["only_deep"] == pytest.approx([0.5, 0.6, 0.7])
    # Lower is better there, and outwards is better in the plot.
    assert values["geometry"] == pytest.approx([0.7, 0.9, 0.8])
    assert left_out == ["geometry/uniformity"]
    assert explain(found[0]) == "mean of ao_at_10, js_at_10"


def test_the_radar_closes_its_lines_and_says_what_is_on_no_axis() -> None:
    plot = radar_plot(_comparison(), PRIMARY)
    assert plot.figure is not None
    lines = plot.figure.data
    assert [line.name for line in lines] == ["a", "b", "c"]
    assert list(lines[1].r) == pytest.approx([70, 90, 60, 50, 70])
    assert plot.notes[-1] == "Not between 0 and 1, so on no axis: geometry/uniformity."


def test_two_families_are_no_radar() -> None:
    plot = radar_plot(_comparison({PRIMARY: (0.1, 0.2, 0.3), "zero_shot/top1": (0.1, 0.2, 0.3)}), PRIMARY)
    assert plot.html == ""
    assert plot.notes == ("A radar needs 3 benchmarks; 2 were measured.",)


def test_of_many_encoders_the_radar_first_shows_the_reference_and_the_best() -> None:
    names = [f"e{number}" for number in range(18)]
    values = {f"{name}/top1": [number / 20 for number in range(18)] for name in ("zero_shot", "x", "y")}
    plot = radar_plot(_comparison(values, names), "x/top1")
    assert [chip.encoder for chip in plot.chips if chip.pressed] == ["e0", "e13", "e14", "e15", "e16", "e17"]
    assert plot.figure is not None
    assert [line.name for line in plot.figure.data if line.visible] == ["e0", "e13", "e14", "e15", "e16", "e17"]


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
    line, points = plot.figure.data
    assert list(line.x) == pytest.approx([50, 60, 70])
    assert list(points.text) == ["a", "b", "c"]
    worse = VALUES | {"zero_shot/top1": (0.7, 0.8, 0.6)}
    plot = pareto_plot(_comparison(worse), PRIMARY)
    assert plot.figure is not None
    hollow = "rgba(0,0,0,0)"
    assert [colour == hollow for colour in plot.figure.data[1].marker.color] == [True, False, True]
    assert plot.notes[0].endswith("(b).")


def test_many_points_bear_numbers_with_a_key() -> None:
    names = [f"e{number}" for number in range(18)]
    values = {name: [number / 20 for number in range(18)] for name in (PRIMARY, "zero_shot/top1")}
    plot = pareto_plot(_comparison(values, names), PRIMARY)
    assert plot.figure is not None
    assert list(plot.figure.data[1].text) == [str(number) for number in range(1, 19)]
    assert list(plot.key) == names


def test_without_zero_shot_accuracy_there_is_no_pareto_plot() -> None:
    plot = pareto_plot(_comparison({PRIMARY: (0.1, 0.2, 0.3)}), PRIMARY)
    assert (plot.figure, plot.notes) == (None, ("zero_shot/top1 was not measured.",))


def test_labels_of_equal_points_stand_on_different_sides() -> None:
    places = label_places(np.array([[1.0, 1.0]] * 3 + [[2.0, 2.0]]), ["one", "two", "three", "four"])
    assert len(set(places[:3])) == 3


def test_a_long_label_at_the_edge_stands_inwards() -> None:
    assert "left" in label_places(np.array([[0.0, 0.0], [1.0, 1.0]]), ["a", "a_long_name_of_it"])[1]


def test_curves_begin_with_the_total_loss_and_tell_what_is_missing() -> None:
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


def test_without_curves_the_section_says_so() -> None:
    plot = curve_plot(Curves({}, {"a": "no tracked run trained it", "b": "no tracked run trained it"}), "ab")
    assert (plot.figure, plot.notes) == (None, ("No curves of a, b: no tracked run trained it.",))
