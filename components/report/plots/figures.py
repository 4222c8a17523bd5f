"""All plots of a comparison, by name, with what the page says beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from components.report.comparison.comparison import Comparison
from components.report.comparison.families import Family, explain, families
from components.report.plots import bars as plots
from components.report.plots.bars import fragment, line_style
from components.report.plots.loss_curves import curve_names, loss_curves
from components.report.plots.pareto import AGAINST, NAMED, frontier, pareto, positions
from components.report.plots.radar import FEWEST, radar
from components.tracking.curves import Curves

FIRST = 6
"""Encoders whose lines are drawn before the reader chooses."""


@dataclass(frozen=True)
class Chip:
    """A button that shows and hides an encoder's lines."""

    encoder: str
    colour: str
    dash: str
    pressed: bool


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
        key: encoder names for numbered points.
    """

    name: str
    title: str
    figure: go.Figure | None
    notes: tuple[str, ...] = ()
    chips: tuple[Chip, ...] = ()
    choices: tuple[str, ...] = ()
    key: tuple[str, ...] = ()

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


def radar_plot(comparison: Comparison, primary: str) -> Plot:
    """The radar of all benchmark families, or why there is none."""
    title = "Benchmark families, 0 to 100, larger is better"
    axes, left_out = families(comparison, primary)
    if len(axes) < FEWEST:
        return Plot("radar", title, None, (f"A radar needs {FEWEST} benchmarks; {len(axes)} were measured.",))
    shown = shown_first(comparison, primary)
    notes = [_axis_note(axes)]
    if left_out:
        notes.append(f"Not between 0 and 1, so on no axis: {', '.join(left_out)}.")
    return Plot(
        "radar", title, radar(axes, comparison.encoders, shown), tuple(notes), _chips(comparison.encoders, shown)
    )


def _axis_note(axes: Sequence[Family]) -> str:
    return "Axes: " + "; ".join(f"{family.name} ({explain(family)})" for family in axes) + "."


def pareto_plot(comparison: Comparison, primary: str) -> Plot:
    """The primary metric against zero-shot accuracy, or why there is no such plot."""
    title = f"{primary} against {AGAINST}, with 95% intervals"
    missing = [name for name in (primary, AGAINST) if name not in comparison.cells]
    if missing:
        return Plot("pareto", title, None, tuple(f"{name} was not measured." for name in missing))
    best = frontier(positions(comparison, primary))
    names = ", ".join(comparison.encoders[row] for row in best)
    note = f"Filled, joined by the dotted line: no other encoder is better in one and as good in the other ({names})."
    key = comparison.encoders if len(comparison.encoders) > NAMED else ()
    return Plot("pareto", title, pareto(comparison, primary), (note,), key=key)


def curve_plot(curves: Curves, encoders: Sequence[str]) -> Plot:
    """The curves of training, or why there are none."""
    title = "Training, as MLflow recorded it"
    reasons: dict[str, list[str]] = {}
    for encoder, reason in curves.missing.items():
        reasons.setdefault(reason, []).append(encoder)
    notes = tuple(f"No curves of {', '.join(names)}: {reason}." for reason, names in reasons.items())
    if not curves.found:
        return Plot("curves", title, None, notes)
    trained = [encoder for encoder in encoders if encoder in curves.found]
    chips = tuple(chip for chip in _chips(encoders, trained) if chip.encoder in curves.found)
    return Plot("curves", title, loss_curves(curves, encoders), notes, chips, tuple(curve_names(curves)))


def shown_first(comparison: Comparison, primary: str) -> list[str]:
    """The reference and the best by `primary`, so many that their lines can be told apart."""
    others = list(comparison.encoders[1:])
    if primary in comparison.cells:
        row = comparison.cells[primary]
        others.sort(key=lambda name: row[name].value.value, reverse=row[comparison.reference].higher_is_better)
    return [comparison.reference, *others[: FIRST - 1]]


def _chips(encoders: Sequence[str], shown: Sequence[str]) -> tuple[Chip, ...]:
    return tuple(Chip(name, *line_style(number), name in shown) for number, name in enumerate(encoders))


def all_plots(comparison: Comparison, primary: str, curves: Curves) -> list[Plot]:
    """Every plot of the page."""
    return [
        *bar_plots(comparison, primary),
        radar_plot(comparison, primary),
        pareto_plot(comparison, primary),
        curve_plot(curves, comparison.encoders),
    ]
