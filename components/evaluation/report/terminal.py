"""A comparison on the terminal, in the layout that fits its width."""

from __future__ import annotations

from collections.abc import Sequence

from more_itertools import chunked
from rich.console import Console

from components.core.settings import Settings
from components.evaluation.benchmarks.project import find_benchmark
from components.evaluation.report.comparison import LEGEND, Comparison, headline
from components.evaluation.scoring.benchmark import key_metrics
from components.evaluation.scoring.terminal import rich_table

_ALWAYS_SIDE_BY_SIDE = 2
_ENDLESS = 1_000_000
_COLUMN_WIDTH = 16
"""Width of a value with its half-width, arrow and frame, `100.0 ±10.0 ▲`."""


def show(comparison: Comparison, settings: Settings, every: bool = False, groups: bool = False) -> None:
    """Print the key metrics of the benchmarks in params.yaml, and the options that print the others."""
    overall, grouped = comparison.names(grouped=False), comparison.names(grouped=True)
    benchmarks = [find_benchmark(name) for name in settings.evaluate.benchmarks]
    key = key_metrics(benchmarks, list(comparison.cells))
    shown = (overall if every or groups or not key else key) + (grouped if groups else [])
    print_comparison(comparison, settings.promote.metric, shown)
    if hidden := len(comparison.cells) - len(shown):
        print(f"{hidden} more metrics: cliptune report --all, cliptune report --groups")


def print_comparison(comparison: Comparison, primary: str, names: Sequence[str]) -> None:
    """Print these metrics of all encoders side by side, or in rows if the terminal is too narrow."""
    console = Console()
    table = comparison.table(names)
    side_by_side = rich_table(table)
    natural = console.measure(side_by_side, options=console.options.update_width(_ENDLESS)).maximum
    if len(comparison.encoders) > _ALWAYS_SIDE_BY_SIDE and natural > console.width:
        fitting = (console.width - max(map(len, comparison.encoders)) - 4) // _COLUMN_WIDTH
        for section, rows in table.sections.items():
            for few in chunked([row.name for row in rows], max(1, fitting)):
                console.print(rich_table(comparison.table_by_encoder(few, section, prefix=f"{section}/")))
    else:
        console.print(side_by_side)
    console.print(LEGEND.format(reference=comparison.reference), style="dim", markup=False)
    console.print(headline(comparison, primary), style="bold", markup=False, highlight=False)
