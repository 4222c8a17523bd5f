"""Results on published benchmarks as bars, by encoder or by a setting of encoders.

python -m research.figures.bars --plot cc_neg_semclip/original_over_negation --by n --output n.html
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import Annotated

import numpy as np
import plotly.graph_objects as go
import typer
from more_itertools import map_reduce

from components.core.system.errors import InputError
from components.core.system.project import in_project, start
from components.encoders.adapter.sidecar import SIDECAR, read_sidecar
from components.evaluation.report.comparison import Comparison
from components.evaluation.report.formats import write_text
from components.evaluation.report.plots import bars
from components.evaluation.report.published.tables import encoder_names
from components.evaluation.scoring.result_table import Cell, exact
from components.evaluation.scoring.results import DEFAULT, PUBLISHED, PublishedReport, all_published


def bars_of(reports: Sequence[PublishedReport], metrics: Sequence[str], by: Sequence[str], models: Path) -> go.Figure:
    """Bars of `metrics` for each encoder, or for the mean of encoders with equal settings (SemCLIP's figures 2 to 10).

    Args:
        by: settings of the encoders' method; an encoder without any of them has its own bar, as have weights that
            share a name, because the folder has only the last of them.
    """
    named = encoder_names(reports)
    values = {(named(report), name): metric.value for report in reports for name, metric in report.metrics.items()}
    for metric in metrics:
        if not any(name == metric for _, name in values):
            raise InputError(f"--plot {metric}: no encoder has this metric: `cliptune table --groups` lists all")
    shown = dict.fromkeys(encoder for encoder, name in values if name in metrics)
    labels = {encoder: _label(models / encoder, by) for encoder in shown}
    for setting in by:
        if not any(f"{setting} " in label for label in labels.values()):
            raise InputError(f"--by {setting}: no encoder in {models} has this setting: choose a setting of its method")
    means: dict[str, dict[str, Cell]] = {metric: {} for metric in metrics}
    for label, encoders in map_reduce(labels, lambda encoder: labels[encoder]).items():
        for metric in metrics:
            found = [values[name, metric] for name in encoders if (name, metric) in values]
            means[metric][label] = Cell(exact(float(np.mean(found)) if found else nan))
    return bars(Comparison(tuple(dict.fromkeys(labels.values())), means), metrics, metrics)


def _label(folder: Path, by: Sequence[str]) -> str:
    """Such as `n 2, learnable false`; the encoder's name if it has none of the settings."""
    settings = read_sidecar(folder).settings if by and (folder / SIDECAR).exists() else {}
    pairs = [f"{name} {str(settings[name]).lower()}" for name in by if name in settings]
    return ", ".join(pairs) or folder.name


@in_project
def main(
    plot: Annotated[list[str], typer.Option(help="Draw this metric as bars. May be given several times.")],
    output: Annotated[Path, typer.Option(help="The page.")],
    by: Annotated[
        list[str] | None, typer.Option(help="A setting; encoders with equal values form one bar. May be repeated.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of the results.")] = PUBLISHED,
) -> None:
    """Draw metrics of the results of `cliptune evaluate` as bars in a self-contained page.

    Example: python -m research.figures.bars --plot cc_neg_semclip/original_over_negation --by n --output n.html
    """
    figure = bars_of(all_published(results), plot, by or [], DEFAULT.models)
    write_text(output, str(figure.to_html(include_plotlyjs=True)))
    print(f"wrote {output}")


if __name__ == "__main__":
    start(main)
