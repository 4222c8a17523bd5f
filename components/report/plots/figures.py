"""All plots of a comparison, by name, with what the page says beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from components.report.comparison.comparison import Comparison
from components.report.plots import bars as plots
from components.report.plots.bars import fragment, line_style
from components.report.plots.lines import AGAINST, curve_names, frontier, loss_curves, pareto, positions
from components.tracking.curves import Curves


@dataclass(frozen=True)
class Chip:
    """A button that shows and hides an encoder's lines."""

    encoder: str
    colour: str
    dash: str


@dataclass(frozen=True)
class Plot:
    """One figure of the page.

    Attributes:
        name: names its element and its artifact.
        title: its caption.
        figure: None where there is nothing to draw.
        notes: sentences below the plot; those that say why where there is none.
        chips: encoders that can be shown and hidden.
        choices: metrics to choose one of.
    """

    name: str
    title: str
    figure: go.Figure | None
    notes: tuple[str, ...] = ()
    chips: tuple[Chip, ...] = ()
    choices: tuple[str, ...] = ()

    @property
    def html(self) -> str:
        """The figure as a fragment of the page; empty where there is none."""
        return fragment(self.figure, f"plot-{self.name}") if self.figure is not None else ""


def bar_plots(comparison: Comparison, primary: str) -> list[Plot]:
    """The metrics over all queries, and the primary one by group; without those that were not measured."""
    main, groups = plots.main_metrics(comparison, primary), plots.by_group(comparison, primary)
    wanted = [
        ("metrics", "Metrics over all queries, with 95% intervals", main, plots.short_label),
        ("groups", f"{primary} by group of queries, with 95% intervals", groups, plots.group_label),
    ]
    return [
        Plot(name, title, plots.bars(comparison, names, [label(metric) for metric in names]))
        for name, title, names, label in wanted
        if names
    ]


def pareto_plot(comparison: Comparison, primary: str) -> Plot:
    """The primary metric against zero-shot accuracy, or why there is no such plot."""
    title = f"{primary} against {AGAINST}, with 95% intervals"
    missing = [name for name in (primary, AGAINST) if name not in comparison.cells]
    if missing:
        return Plot("pareto", title, None, tuple(f"{name} was not measured." for name in missing))
    best = frontier(positions(comparison, primary))
    names = ", ".join(comparison.encoders[row] for row in best)
    note = f"Filled, joined by the dotted line: no other encoder is better in one and as good in the other ({names})."
    return Plot("pareto", title, pareto(comparison, primary), (note,))


def curve_plot(curves: Curves, encoders: Sequence[str]) -> Plot:
    """The curves of training, or why there are none."""
    title = "Training, as MLflow recorded it"
    reasons: dict[str, list[str]] = {}
    for encoder, reason in curves.missing.items():
        reasons.setdefault(reason, []).append(encoder)
    notes = tuple(f"No curves of {', '.join(names)}: {reason}." for reason, names in reasons.items())
    if not curves.found:
        return Plot("curves", title, None, notes)
    styles = ((encoder, *line_style(number)) for number, encoder in enumerate(encoders))
    chips = tuple(Chip(*style) for style in styles if style[0] in curves.found)
    return Plot("curves", title, loss_curves(curves, encoders), notes, chips, tuple(curve_names(curves)))


def all_plots(comparison: Comparison, primary: str, curves: Curves) -> list[Plot]:
    """Every plot of the page."""
    return [
        *bar_plots(comparison, primary),
        pareto_plot(comparison, primary),
        curve_plot(curves, comparison.encoders),
    ]
