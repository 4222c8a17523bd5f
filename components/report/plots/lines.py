"""Plots of lines and points: training's curves, and paraphrase robustness against zero-shot accuracy (Pareto)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from components.core.metrics import Reals
from components.report.comparison.comparison import Cell, Comparison
from components.report.plots.bars import COLOURS, errors, line_style, set_layout
from components.tracking.curves import Curves

TOTAL = "loss/total"


def curve_names(curves: Curves) -> list[str]:
    """Names of all metrics, the total loss first."""
    names = {name for found in curves.found.values() for name in found}
    return sorted(names, key=lambda name: (name != TOTAL, name))


def loss_curves(curves: Curves, encoders: Sequence[str]) -> go.Figure:
    """One line per metric and encoder; those of the first metric are drawn, the page's chooser shows others.

    Args:
        curves: with something found.
        encoders: all of the comparison, whose order decides the colours.
    """
    figure, first = go.Figure(), curve_names(curves)[0]
    for number, encoder in enumerate(encoders):
        colour, dash = line_style(number)
        for name, points in curves.found.get(encoder, {}).items():
            figure.add_scatter(
                name=encoder,
                x=[step for step, _ in points],
                y=[value for _, value in points],
                # A line of one point would not be seen.
                mode="lines" if len(points) > 1 else "markers",
                line={"color": colour, "dash": dash, "width": 2},
                marker={"color": colour},
                meta={"encoder": encoder, "choice": name},
                visible=name == first,
                hovertemplate="step %{x}: %{y:.4g}<extra>" + encoder + "</extra>",
            )
    return set_layout(
        figure,
        height=420,
        margin={"l": 48, "r": 12, "t": 16, "b": 48},
        showlegend=False,
        dragmode=False,
        xaxis={"title": {"text": "step"}, "fixedrange": True, "rangemode": "tozero"},
        yaxis={"fixedrange": True, "automargin": True},
    )


AGAINST = "zero_shot/top1"
"""What fine-tuning of the text side puts at risk (ParaCLIP, table 2)."""
_SYMBOLS = {"solid": "circle", "dash": "square", "dot": "diamond", "longdash": "triangle-up"}
"""Dash of an encoder's lines in other plots -> its symbol here."""


def frontier(points: Reals) -> list[int]:
    """Rows of `points` `[encoders, 2]` that no other row dominates, ordered by the first column.

    Larger is better in both columns. A row dominates another that it equals or exceeds in both columns and exceeds
    in one, so that equal points are on the frontier together.
    """
    kept = []
    for row, point in enumerate(points):
        dominates = (points >= point).all(axis=1) & (points > point).any(axis=1)
        if not dominates.any():
            kept.append(row)
    return sorted(kept, key=lambda row: (points[row][0], -points[row][1]))


def positions(comparison: Comparison, primary: str, against: str = AGAINST) -> Reals:
    """Every encoder's place, larger being better `[encoders, 2]`: `against`, then `primary`."""

    def column(name: str) -> list[float]:
        return [_upwards(comparison.cells[name][encoder]) for encoder in comparison.encoders]

    return np.array([column(against), column(primary)], dtype=np.float64).T


def pareto(comparison: Comparison, primary: str, against: str = AGAINST) -> go.Figure:
    """A point with 95% intervals for each encoder, named in the legend; filled and joined are those on the frontier."""
    best = frontier(positions(comparison, primary, against))
    x, y = ([comparison.cells[name][encoder] for encoder in comparison.encoders] for name in (against, primary))
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
        colour, dash = line_style(number)
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
                "symbol": _SYMBOLS[dash] + ("" if number in best else "-open"),
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
        xaxis={"title": {"text": against}, "fixedrange": True, "range": _span(x)},
        yaxis={"title": {"text": primary, "font": {"size": 12}}, "fixedrange": True, "range": _span(y)},
    )


def _span(cells: Sequence[Cell]) -> list[float]:
    """Limits of an axis with room beside the outermost intervals."""
    low, high = min(100 * cell.value.low for cell in cells), max(100 * cell.value.high for cell in cells)
    room = max(0.05 * (high - low), 1)
    return [low - room, high + room]


def _upwards(cell: Cell) -> float:
    return cell.value.value if cell.higher_is_better else -cell.value.value
