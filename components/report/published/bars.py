"""Metrics of published benchmarks as bars, as in SemCLIP's figures 2 to 10, by encoder or by a setting of encoders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from more_itertools import map_reduce

from components.core.errors import InputError
from components.encoders.adapter.sidecar import SIDECAR, read_sidecar
from components.evaluation.results import PublishedReport
from components.report.plots import line_style, set_layout
from components.report.published.table import encoder_names


def bars_of(reports: Sequence[PublishedReport], metrics: Sequence[str], by: Sequence[str], models: Path) -> go.Figure:
    """A group of bars for each of `metrics`, with a bar for each encoder, or the mean of those of equal settings.

    Args:
        reports: results of all encoders.
        metrics: full names.
        by: settings of the encoders' method; an encoder without any of them keeps a bar of its own.
        models: the folder of the encoders, whose sidecars have the settings. Where several weights share a name,
            each keeps a bar of its own, because the folder has only the last of them.

    Raises:
        InputError: nothing was scored on a metric, or no encoder has a setting.
    """
    named = encoder_names(reports)
    found = {(named(one), name): value.value for one in reports for name, value in one.metrics.items()}
    for metric in metrics:
        if not any(name == metric for _, name in found):
            raise InputError(f"--plot {metric}: no encoder has this metric: `cliptune table --groups` shows all")
    shown = dict.fromkeys(encoder for encoder, name in found if name in metrics)
    labels = {encoder: _label(models / encoder, by) for encoder in shown}
    for setting in by:
        if not any(f"{setting} " in label for label in labels.values()):
            raise InputError(f"--by {setting}: no encoder in {models} has this setting: take one of its method")
    figure = go.Figure()
    for number, (label, encoders) in enumerate(map_reduce(labels, lambda encoder: labels[encoder]).items()):
        values = [[found[one, metric] for one in encoders if (one, metric) in found] for metric in metrics]
        means = [100 * float(np.mean(own)) if own else None for own in values]
        colour = line_style(number)[0]
        figure.add_bar(name=label, x=list(metrics), y=means, marker_color=colour)
    return set_layout(figure, barmode="group", legend={"orientation": "h", "y": 1, "yanchor": "bottom"})


def _label(folder: Path, by: Sequence[str]) -> str:
    """Such as `n 2, learnable false`; the encoder's name where none of the settings is its."""
    settings = read_sidecar(folder).settings if by and (folder / SIDECAR).exists() else {}
    told = [f"{name} {str(settings[name]).lower()}" for name in by if name in settings]
    return ", ".join(told) or folder.name


def page_of(figure: go.Figure) -> str:
    """A page that needs no other file."""
    return str(figure.to_html(include_plotlyjs=True))
