"""What all plots share, and bar plots of a comparison."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from components.benchmarks.bootstrap import Interval
from components.report.comparison.comparison import Comparison

REFERENCE_COLOUR = "#8b95a5"
COLOURS = ("#2f7ed8", "#e08a00", "#00986c", "#c4619b", "#b5542a")
"""Told apart by most colour-blind readers, on light and on dark."""
DASHES = ("solid", "dash", "dot", "longdash")

_ROW_HEIGHT, _FRAME_HEIGHT = 20, 90


def plotly_script() -> str:
    """The plotting library's source, to be put into the page once."""
    return str(get_plotlyjs())


def line_style(number: int) -> tuple[str, str]:
    """Colour and dash of encoder `number`'s lines, the reference being 0; 20 more can be told apart."""
    if number == 0:
        return REFERENCE_COLOUR, "solid"
    return COLOURS[(number - 1) % len(COLOURS)], DASHES[(number - 1) // len(COLOURS) % len(DASHES)]


def set_layout(figure: go.Figure, **layout: Any) -> go.Figure:
    """Give `figure` the page's transparent ground, so that the page's theme shows, and its own `layout`."""
    figure.update_layout(paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", template="none", **layout)
    return figure


def fragment(figure: go.Figure, element: str) -> str:
    """The figure as a `<div>` with the id `element`, for a page that holds the plotting library."""
    config = {"responsive": True, "displayModeBar": False}
    return str(figure.to_html(full_html=False, include_plotlyjs=False, div_id=element, config=config))


def errors(intervals: Sequence[Interval], thickness: float, width: int) -> dict[str, Any]:
    """Lines from the low to the high end of each interval, as plotly's `error_x` and `error_y` take them."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [100 * (one.high - one.value) for one in intervals],
        "arrayminus": [100 * (one.value - one.low) for one in intervals],
        "thickness": thickness,
        "width": width,
    }


def main_metrics(comparison: Comparison, primary: str) -> list[str]:
    """Metrics over all queries: those at the primary metric's depth, and those without a depth."""
    wanted = depth(primary)
    names = comparison.names(grouped=False)
    return [name for name in names if depth(name) in (wanted, None)]


def by_group(comparison: Comparison, primary: str) -> list[str]:
    """The primary metric within each group of queries."""
    benchmark, metric = primary.split("/", 1)
    return [name for name in comparison.cells if re.fullmatch(rf"{benchmark}/[^/]+/{re.escape(metric)}", name)]


def bars(comparison: Comparison, names: Sequence[str], labels: Sequence[str]) -> go.Figure:
    """Horizontal bars with 95% intervals, one group per metric and one colour per encoder.

    With more encoders than colours each bar is labelled instead, and the reference alone has a colour of its own.
    """
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
            marker_color=_bar_colour(number, crowded),
            hovertemplate="%{x:.1f}<extra>" + encoder + "</extra>",
        )
    lowest = min(100 * comparison.cells[name][encoder].value.low for name in names for encoder in comparison.encoders)
    return set_layout(
        figure,
        # A labelled bar has a row of its own, which a group would divide among all encoders.
        barmode="overlay" if crowded else "group",
        showlegend=not crowded,
        bargap=0.3,
        height=_FRAME_HEIGHT + _ROW_HEIGHT * len(names) * (len(comparison.encoders) + 1),
        margin={"l": 8, "r": 12, "t": 36, "b": 36},
        legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        # Shares lie between 0 and 100; a metric such as a correlation may be negative.
        xaxis={"range": [0, 100], "fixedrange": True} if lowest >= 0 else {"fixedrange": True},
        # Bars stand on names, between which a line would say nothing.
        yaxis={
            "autorange": "reversed",
            "showgrid": False,
            "automargin": True,
            "fixedrange": True,
            "ticklabelstandoff": 6,
        },
    )


def _bar_colour(number: int, crowded: bool) -> str:
    if number == 0:
        return REFERENCE_COLOUR
    return COLOURS[0 if crowded else number - 1]


def short_label(name: str) -> str:
    """A metric's last part above its benchmark, so that labels stay narrow."""
    section, metric = name.rsplit("/", 1)
    return f"{metric}<br><sub>{section}</sub>"


def group_label(name: str) -> str:
    """The group of a metric's full name."""
    return name.split("/")[1].replace("_", " ")


def depth(name: str) -> int | None:
    """The depth at the end of a metric's name, such as 10 of `ao_at_10`; None where it has none."""
    found = re.search(r"_at_(\d+)$", name)
    return int(found.group(1)) if found else None
