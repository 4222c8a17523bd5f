"""Radar plot: one axis per benchmark family, one line per encoder."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from components.report.comparison.families import Family
from components.report.plots.bars import line_style, set_layout

FEWEST = 3
"""Axes that make an area."""


def radar(families: Sequence[Family], encoders: Sequence[str], shown: Sequence[str]) -> go.Figure:
    """Lines of all encoders; those not among `shown` are drawn once the reader asks for them."""
    figure = go.Figure()
    axes = [family.name.replace("_", "<br>") for family in families]
    for number, encoder in enumerate(encoders):
        colour, dash = line_style(number)
        values = [100 * family.values[encoder] for family in families]
        figure.add_scatterpolar(
            name=encoder,
            theta=[*axes, axes[0]],
            r=[*values, values[0]],
            mode="lines+markers",
            line={"color": colour, "dash": dash, "width": 2},
            marker={"color": colour, "size": 5},
            meta={"encoder": encoder},
            visible=encoder in shown,
            hovertemplate="%{r:.1f}<extra>" + encoder + "</extra>",
        )
    return set_layout(
        figure,
        height=420,
        margin={"l": 64, "r": 64, "t": 40, "b": 40},
        showlegend=False,
        polar={
            "bgcolor": "rgba(0,0,0,0)",
            "radialaxis": {
                "range": [0, 100],
                "tickvals": [25, 50, 75, 100],
                "tickfont": {"size": 10},
                "angle": 90,
                "tickangle": 90,
            },
            "angularaxis": {"direction": "clockwise", "rotation": 90, "tickfont": {"size": 11}},
        },
        dragmode=False,
    )
