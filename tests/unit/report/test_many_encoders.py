"""A comparison of many encoders can still be read, on a narrow terminal and as a plot."""

from __future__ import annotations

import re
from typing import Any

import pytest

from components.benchmarks.scoring.bootstrap import Interval
from components.report.comparison import Cell, Comparison
from components.report.plots import COLOURS, bars, line_style
from components.report.terminal import print_comparison

METRICS = [f"benchmark/metric_at_{depth}" for depth in (1, 5, 10, 20, 50)]


def _comparison(count: int) -> Comparison:
    """Values tell the encoder and the metric: encoder 3 has 30.1 at metric 1."""
    names = ["base", *(f"encoder_{number}" for number in range(1, count))]

    def cell(number: int, place: int) -> Cell:
        value = number / 10 + place / 1000
        delta = Interval(0.1, 0.05, 0.15) if number else None
        return Cell(Interval(value, value - 0.02, value + 0.02), delta, higher_is_better=True)

    rows = {
        metric: {name: cell(number, place) for number, name in enumerate(names)}
        for place, metric in enumerate(METRICS, start=1)
    }
    return Comparison(tuple(names), rows)


@pytest.mark.parametrize("width", [80, 120])
def test_no_value_is_cut_on_a_narrow_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    print_comparison(_comparison(9), METRICS[0])
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= width
    rows = [line for line in shown.splitlines() if "encoder_3" in line]
    values = [value for row in rows for value in re.findall(r"(\d+\.\d) ±2\.0 ▲", row)]
    assert values == ["30.1", "30.2", "30.3", "30.4", "30.5"]


def test_few_encoders_or_a_wide_terminal_stand_side_by_side_with_their_differences(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for count, width in ((2, 80), (9, 500)):
        monkeypatch.setenv("COLUMNS", str(width))
        print_comparison(_comparison(count), METRICS[0])
        assert "+10.0 [+5.0, +15.0] ▲" in capsys.readouterr().out


def _traces(count: int) -> list[Any]:
    return list(bars(_comparison(count), METRICS, METRICS).data)


def test_bars_are_told_apart_by_colour_or_by_label() -> None:
    coloured = _traces(len(COLOURS) + 1)
    assert len({trace.marker.color for trace in coloured}) == len(COLOURS) + 1
    assert all(list(trace.y) == METRICS for trace in coloured)
    labelled = _traces(len(COLOURS) + 2)
    assert [list(part) for part in labelled[3].y] == [METRICS, ["encoder_3"] * len(METRICS)]
    assert labelled[0].marker.color != labelled[1].marker.color == labelled[6].marker.color


def test_lines_of_many_encoders_are_told_apart() -> None:
    assert len({line_style(number) for number in range(31)}) == 31
