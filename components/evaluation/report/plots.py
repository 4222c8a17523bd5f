"""The plots of a comparison with their notes: bars and a Pareto plot."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isinf
from typing import TYPE_CHECKING, Any

import numpy as np

from components.core.compute.metrics import Reals
from components.evaluation.report.comparison import Comparison
from components.evaluation.scoring.intervals import Interval

if TYPE_CHECKING:
    import plotly.graph_objects as go

REFERENCE_COLOUR = "#8b95a5"
COLOURS = ("#2f7ed8", "#e08a00", "#00986c", "#c4619b", "#b5542a")
"""Distinct for most colour-blind readers on light and dark backgrounds."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross")

_ROW_HEIGHT, _FRAME_HEIGHT = 20, 90


def marker_style(number: int) -> tuple[str, str]:
    """Colour and symbol of encoder `number`; the reference is 0, and 30 others are distinct."""
    if number == 0:
        return REFERENCE_COLOUR, SYMBOLS[0]
    return COLOURS[(number - 1) % len(COLOURS)], SYMBOLS[(number - 1) // len(COLOURS) % len(SYMBOLS)]


def set_layout(figure: go.Figure, **layout: Any) -> go.Figure:
    """Set the layout of `figure` with a transparent background, so that the page's theme is visible."""
    figure.update_layout(paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", template="none", **layout)
    return figure


def errors(intervals: Sequence[Interval], thickness: float, width: int) -> dict[str, Any]:
    """Lines from the low to the high end of each interval, as plotly's `error_x` and `error_y` take them."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [100 * (one.high - one.value) if one.is_known else None for one in intervals],
        "arrayminus": [100 * (one.value - one.low) if one.is_known else None for one in intervals],
        "thickness": thickness,
        "width": width,
        "visible": any(one.is_known and one.half_width > 0 for one in intervals),
    }


def bars(comparison: Comparison, names: Sequence[str], labels: Sequence[str]) -> go.Figure:
    """Horizontal bars with 95% intervals, one group per metric and one colour per encoder.

    With more encoders than colours each bar is labelled, and only the reference has its own colour.
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    crowded = len(comparison.encoders) > len(COLOURS) + 1
    for number, encoder in enumerate(comparison.encoders):
        cells = [comparison.cells[name][encoder].value for name in names]
        figure.add_bar(
            name=encoder,
            orientation="h",
            y=[list(labels), [encoder] * len(labels)] if crowded else list(labels),
            x=[100 * cell.value for cell in cells],
            error_x=errors(cells, 1.2, 3),
            marker_color=REFERENCE_COLOUR if number == 0 else COLOURS[0 if crowded else number - 1],
            hovertemplate="%{x:.1f}<extra>" + encoder + "</extra>",
        )
    shown = [comparison.cells[name][encoder].value for name in names for encoder in comparison.encoders]
    lowest = min(one.value if isinf(one.low) else one.low for one in shown)
    return set_layout(
        figure,
        # A labelled bar has its own row, which a group would divide among all encoders.
        barmode="overlay" if crowded else "group",
        showlegend=not crowded,
        bargap=0.3,
        height=_FRAME_HEIGHT + _ROW_HEIGHT * len(names) * (len(comparison.encoders) + 1),
        margin={"l": 8, "r": 12, "t": 36, "b": 36},
        legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        # Shares with an interval are between 0 and 100; a metric such as a correlation may be negative.
        xaxis={"range": [0, 100], "fixedrange": True} if lowest >= 0 else {"fixedrange": True},
        yaxis={
            "autorange": "reversed",
            "showgrid": False,
            "automargin": True,
            "fixedrange": True,
            "ticklabelstandoff": 6,
        },
    )


def depth(name: str) -> int | None:
    """The depth at the end of a metric's name, such as 10 in `ao_at_10`; None without a depth."""
    matched = re.search(r"_at_(\d+)$", name)
    return int(matched.group(1)) if matched else None


AGAINST = "zero_shot/top1"
"""The metric that fine-tuning of the text tower may reduce (ParaCLIP, table 2)."""


def frontier(points: Reals) -> list[int]:
    """Rows of `points` `[encoders, 2]` that no other row dominates, ordered by the first column.

    A row dominates another if it is at least as large in both columns and larger in one; equal points are both on the
    frontier.
    """
    dominating = [(points >= point).all(axis=1) & (points > point).any(axis=1) for point in points]
    kept = [row for row, others in enumerate(dominating) if not others.any()]
    return sorted(kept, key=lambda row: (points[row][0], -points[row][1]))


def _pareto(comparison: Comparison, primary: str, against: str, best: Sequence[int]) -> go.Figure:
    """A point with 95% intervals for each encoder; those of rows `best` are filled and joined by a line."""
    import plotly.graph_objects as go

    x, y = (list(comparison.cells[name].values()) for name in (against, primary))

    figure = go.Figure()
    figure.add_scatter(
        x=[100 * x[row].value.value for row in best],
        y=[100 * y[row].value.value for row in best],
        mode="lines",
        line={"color": COLOURS[2], "width": 2, "dash": "dot"},
        hoverinfo="skip",
        showlegend=False,
    )
    for number, encoder in enumerate(comparison.encoders):
        colour, symbol = marker_style(number)
        figure.add_scatter(
            name=encoder,
            x=[100 * x[number].value.value],
            y=[100 * y[number].value.value],
            error_x=errors([x[number].value], 0.8, 0),
            error_y=errors([y[number].value], 0.8, 0),
            mode="markers",
            marker={
                "size": 11,
                "color": colour,
                "symbol": symbol + ("" if number in best else "-open"),
                "line": {"width": 2, "color": colour},
            },
            hovertemplate="%{x:.1f}, %{y:.1f}<extra>" + encoder + "</extra>",
            cliponaxis=False,
        )
    return set_layout(
        figure,
        height=520,
        margin={"l": 56, "r": 20, "t": 24, "b": 56},
        showlegend=True,
        legend={"orientation": "h", "y": -0.15, "yanchor": "top", "x": 0},
        dragmode=False,
        xaxis={"title": {"text": against}, "fixedrange": True},
        yaxis={"title": {"text": primary, "font": {"size": 12}}, "fixedrange": True},
    )


@dataclass(frozen=True)
class Plot:
    """A figure of the page; `figure` is None if there is no data.

    Attributes:
        name: name of its element and its artifact.
        notes: sentences below the plot, or the reasons why there is none.
    """

    name: str
    title: str
    figure: go.Figure | None
    notes: tuple[str, ...] = ()

    @property
    def html(self) -> str:
        """The figure as a `<div>` for a page with the plotting library; empty without a figure."""
        if self.figure is None:
            return ""
        config = {"responsive": True, "displayModeBar": False}
        element = f"plot-{self.name}"
        return str(self.figure.to_html(full_html=False, include_plotlyjs=False, div_id=element, config=config))


def bar_plots(comparison: Comparison, primary: str) -> list[Plot]:
    """Bars of the metrics over all queries, and of the primary metric by group, if they were measured."""
    plots = []
    # Metrics at the depth of the primary metric or without a depth; labels have the metric above its benchmark.
    if main := [name for name in comparison.names(grouped=False) if depth(name) in (depth(primary), None)]:
        labels = ["{1}<br><sub>{0}</sub>".format(*name.rsplit("/", 1)) for name in main]
        plots.append(Plot("metrics", "Metrics over all queries, with 95% intervals", bars(comparison, main, labels)))
    benchmark, metric = primary.split("/", 1)
    pattern = rf"{benchmark}/[^/]+/{re.escape(metric)}"
    if groups := [name for name in comparison.cells if re.fullmatch(pattern, name)]:
        labels = [name.split("/")[1].replace("_", " ") for name in groups]
        title = f"{primary} by group of queries, with 95% intervals"
        plots.append(Plot("groups", title, bars(comparison, groups, labels)))
    return plots


def pareto_plot(comparison: Comparison, primary: str, against: str = AGAINST, name: str = "pareto") -> Plot:
    """The primary metric against another metric, or the reason why there is no plot."""
    title = f"{primary} against {against}, with 95% intervals"
    missing = [metric for metric in (primary, against) if metric not in comparison.cells]
    if missing:
        return Plot(name, title, None, tuple(f"{metric} was not measured." for metric in missing))
    axes = (comparison.cells[metric].values() for metric in (against, primary))
    # Larger is better on both.
    upwards = [[cell.value.value * (1 if cell.higher_is_better else -1) for cell in axis] for axis in axes]
    best = frontier(np.array(upwards, dtype=np.float64).T)
    names = ", ".join(comparison.encoders[row] for row in best)
    note = f"Filled and joined by the dotted line: encoders that no other encoder dominates ({names})."
    return Plot(name, title, _pareto(comparison, primary, against, best), (note,))
