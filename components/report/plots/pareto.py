"""Pareto plot: paraphrase robustness against zero-shot accuracy, with the encoders that no other one dominates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from components.core.metrics import Reals
from components.report.comparison.comparison import Cell, Comparison
from components.report.plots.bars import COLOURS, REFERENCE_COLOUR, set_layout
from components.report.plots.label_places import label_places

AGAINST = "zero_shot/top1"
"""What fine-tuning of the text side puts at risk (ParaCLIP, table 2)."""
NAMED = 6
"""Up to so many points bear their encoder's name; more bear numbers, for which the page has a key."""


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
    """Points with 95% intervals and labels; filled and joined by a line are those on the frontier."""
    encoders = comparison.encoders
    best = frontier(positions(comparison, primary, against))
    named = len(encoders) <= NAMED
    x, y = ([comparison.cells[name][encoder] for encoder in encoders] for name in (against, primary))
    centres = np.array([[100 * a.value.value, 100 * b.value.value] for a, b in zip(x, y, strict=True)])
    labels = list(encoders) if named else [str(number + 1) for number in range(len(encoders))]
    figure = go.Figure()
    figure.add_scatter(
        x=centres[best, 0],
        y=centres[best, 1],
        mode="lines",
        line={"color": COLOURS[2], "width": 2, "dash": "dot"},
        hoverinfo="skip",
    )
    colours = [REFERENCE_COLOUR if number == 0 else COLOURS[0] for number in range(len(encoders))]
    figure.add_scatter(
        x=centres[:, 0],
        y=centres[:, 1],
        error_x=_errors(x),
        error_y=_errors(y),
        mode="markers+text",
        text=labels,
        textposition=label_places(centres, labels),
        customdata=list(encoders),
        marker={
            "size": 11,
            "color": [colour if row in best else "rgba(0,0,0,0)" for row, colour in enumerate(colours)],
            "line": {"width": 2, "color": colours},
        },
        hovertemplate="%{customdata}<br>%{x:.1f}, %{y:.1f}<extra></extra>",
        cliponaxis=False,
    )
    return set_layout(
        figure,
        height=460,
        margin={"l": 56, "r": 20, "t": 24, "b": 56},
        showlegend=False,
        dragmode=False,
        xaxis={"title": {"text": against}, "fixedrange": True, "range": _span(x)},
        yaxis={"title": {"text": primary, "font": {"size": 12}}, "fixedrange": True, "range": _span(y)},
    )


def _errors(cells: Sequence[Cell]) -> dict[str, object]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [100 * (cell.value.high - cell.value.value) for cell in cells],
        "arrayminus": [100 * (cell.value.value - cell.value.low) for cell in cells],
        "thickness": 0.8,
        "width": 0,
        # Else plotly would take the list of the points' colours for one.
        "color": REFERENCE_COLOUR,
    }


def _span(cells: Sequence[Cell]) -> list[float]:
    """Limits of an axis with room for labels beside the outermost intervals."""
    low, high = min(100 * cell.value.low for cell in cells), max(100 * cell.value.high for cell in cells)
    room = max(0.12 * (high - low), 1)
    return [low - room, high + room]


def _upwards(cell: Cell) -> float:
    return cell.value.value if cell.higher_is_better else -cell.value.value
