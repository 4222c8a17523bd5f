"""Results as tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from more_itertools import chunked
from rich.console import Console
from rich.table import Table
from rich.text import Text

from components.report.comparison.comparison import Comparison
from components.report.comparison.wording import LEGEND, delta_text, headline, mark, value_text

_STYLES = {"better": "green", "worse": "red", "": ""}
_ALWAYS_BESIDE = 2
_ENDLESS = 1_000_000
_VALUE_WIDTH = 13
"""Of a value with its half-width and arrow, `100.0 ±10.0 ▲`."""


def print_comparison(comparison: Comparison, primary: str, groups: bool = False) -> None:
    """Print all encoders side by side, or a row for each where they are too many for the terminal's width.

    Args:
        primary: the metric of the headline.
        groups: also print the values by group of queries.
    """
    sections = comparison.sections(False) | (comparison.sections(True) if groups else {})
    console = Console()
    beside = _side_by_side(comparison, sections)
    natural = console.measure(beside, options=console.options.update_width(_ENDLESS)).maximum
    if len(comparison.encoders) > _ALWAYS_BESIDE and natural > console.width:
        for section, names in sections.items():
            for some in chunked(names, _columns_that_fit(comparison, console.width)):
                console.print(_row_by_row(comparison, section, some))
    else:
        console.print(beside)
    console.print(LEGEND.format(reference=comparison.reference), style="dim", markup=False)
    console.print(headline(comparison, primary), style="bold", markup=False, highlight=False)


def _side_by_side(comparison: Comparison, sections: Mapping[str, list[str]]) -> Table:
    table = Table()
    table.add_column("metric", overflow="fold")
    for encoder in comparison.encoders:
        table.add_column(encoder, justify="right", no_wrap=True)
        if encoder != comparison.reference:
            table.add_column(f"vs {comparison.reference}", justify="right")
    for section, names in sections.items():
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
    """How many values stand beside an encoder's name; each column has three characters of frame."""
    left = width - (max(map(len, comparison.encoders)) + 4)
    return max(1, left // (_VALUE_WIDTH + 3))


def _cells(comparison: Comparison, name: str) -> list[str]:
    texts = []
    for encoder, cell in comparison.cells[name].items():
        texts.append(value_text(cell))
        if encoder != comparison.reference:
            style = _STYLES[cell.verdict]
            # The opening bracket of the interval would read as markup.
            text = delta_text(cell).replace("[", r"\[")
            texts.append(f"[{style}]{text}[/{style}]" if style else text)
    return texts
