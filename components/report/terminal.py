"""Results as tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from more_itertools import chunked
from rich.console import Console
from rich.table import Table
from rich.text import Text

from components.benchmarks.project import find_benchmark
from components.benchmarks.scoring.benchmark import key_metrics
from components.core.settings import Settings
from components.report.comparison import LEGEND, Comparison, delta_text, headline, mark, value_text

_STYLES = {"better": "green", "worse": "red", "": ""}
_ALWAYS_SIDE_BY_SIDE = 2
_ENDLESS = 1_000_000
_VALUE_WIDTH = 13
"""Width of a value with its half-width and arrow, `100.0 ±10.0 ▲`."""


def show(comparison: Comparison, settings: Settings, every: bool = False, groups: bool = False) -> None:
    """Print the key metrics of the benchmarks in params.yaml, and the options that print the others."""
    overall, grouped = comparison.names(grouped=False), comparison.names(grouped=True)
    benchmarks = [find_benchmark(name) for name in settings.evaluate.benchmarks]
    key = key_metrics(benchmarks, list(comparison.cells))
    shown = (overall if every or groups or not key else key) + (grouped if groups else [])
    print_comparison(comparison, settings.promote.metric, shown)
    if hidden := len(comparison.cells) - len(shown):
        print(f"{hidden} more metrics: cliptune report --all, cliptune report --groups")


def print_comparison(comparison: Comparison, primary: str, names: Sequence[str] | None = None) -> None:
    """Print all encoders side by side, or in rows if the terminal is too narrow.

    Args:
        names: the metrics to print; by default all over all queries.
    """
    shown = comparison.sections(comparison.names(grouped=False) if names is None else names)
    console = Console()
    table = _side_by_side(comparison, shown)
    natural = console.measure(table, options=console.options.update_width(_ENDLESS)).maximum
    if len(comparison.encoders) > _ALWAYS_SIDE_BY_SIDE and natural > console.width:
        for section, listed in shown.items():
            for columns in chunked(listed, _columns_that_fit(comparison, console.width)):
                console.print(_row_by_row(comparison, section, columns))
    else:
        console.print(table)
    console.print(LEGEND.format(reference=comparison.reference), style="dim", markup=False)
    console.print(headline(comparison, primary), style="bold", markup=False, highlight=False)


def _side_by_side(comparison: Comparison, shown: Mapping[str, list[str]]) -> Table:
    table = Table()
    table.add_column("metric", overflow="fold")
    for encoder in comparison.encoders:
        table.add_column(encoder, justify="right", no_wrap=True)
        if encoder != comparison.reference:
            table.add_column(f"vs {comparison.reference}", justify="right")
    for section, names in shown.items():
        table.add_section()
        table.add_row("[bold]" + section.replace("/", "/\n") + "[/bold]")
        for name in names:
            table.add_row(f"  {name.removeprefix(section + '/')}", *_cells(comparison, name))
    return table


def _row_by_row(comparison: Comparison, section: str, names: list[str]) -> Table:
    table = Table(title=section, title_justify="left", title_style="bold")
    table.add_column("encoder", no_wrap=True)
    for name in names:
        table.add_column(name.removeprefix(section + "/"), justify="right", overflow="fold", min_width=_VALUE_WIDTH)
    for encoder in comparison.encoders:
        cells = [comparison.cells[name][encoder] for name in names]
        texts = [(f"{value_text(cell)} {mark(cell) or ' '}", _STYLES[cell.verdict]) for cell in cells]
        table.add_row(encoder, *(Text(text, style) for text, style in texts))
    return table


def _columns_that_fit(comparison: Comparison, width: int) -> int:
    """How many columns of values fit next to the names; each column has three characters of frame."""
    left = width - (max(map(len, comparison.encoders)) + 4)
    return max(1, left // (_VALUE_WIDTH + 3))


def _cells(comparison: Comparison, name: str) -> list[str]:
    texts = []
    for encoder, cell in comparison.cells[name].items():
        texts.append(value_text(cell))
        if encoder != comparison.reference:
            style = _STYLES[cell.verdict]
            # The opening bracket of the interval would be read as markup.
            text = delta_text(cell).replace("[", r"\[")
            texts.append(f"[{style}]{text}[/{style}]" if style else text)
    return texts
