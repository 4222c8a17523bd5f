"""Curves of training: losses and early metrics of every encoder over its steps."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from components.report.plots.bars import line_style, set_layout
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
