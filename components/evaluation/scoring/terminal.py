"""Results tables on the terminal, with control characters as escapes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from components.core.system.errors import printable
from components.evaluation.scoring.result_table import Cell, Difference, ResultTable

_STYLES = {"better": "green", "worse": "red", "": ""}
_ENDLESS = 1_000_000


def print_results(*tables: ResultTable) -> None:
    """Print tables and their notes; without a terminal no line is broken."""
    console = Console()
    console = console if console.is_terminal else Console(width=_ENDLESS)
    for table in tables:
        console.print(rich_table(table))
    for note in dict.fromkeys(note for table in tables for note in table.notes):
        console.print(Text(printable(note), "dim"))


def rich_table(table: ResultTable) -> Table:
    """The table for rich."""
    shown = Table(title=Text(printable(table.title), "bold") if table.title else None, title_justify="left")
    shown.add_column(Text(printable(table.columns[0])), overflow="fold")
    columns = [_texts([row.cells[place] for row in table.rows]) for place in range(len(table.columns) - 1)]
    for header, is_number, texts in zip(table.columns[1:], table.is_number, columns, strict=True):
        shown.add_column(
            Text(printable(header)),
            justify="right" if is_number else "left",
            overflow="fold",
            # A value is on one line; a difference may continue in the next one.
            min_width=max((len(text) for text in texts if text.no_wrap), default=None),
        )
    section = ""
    for row, *texts in zip(table.rows, *columns, strict=True):
        if row.section != section:
            section = row.section
            shown.add_section()
            # A break, so that the first column is narrow.
            shown.add_row(Text(printable(section).replace("/", "/\n"), "bold"))
        shown.add_row(Text(f"{'  ' if section else ''}{printable(row.short_label)}"), *texts)
    return shown


def _texts(column: Sequence[Cell | Difference | str | None]) -> list[Text]:
    """The cells of a column; of a difference next to its value only the mark is shown."""
    has_marks = any(isinstance(cell, Cell) and cell.mark for cell in column)
    texts = []
    for cell in column:
        if isinstance(cell, Cell):
            mark = f" {cell.mark or ' '}" if has_marks else ""
            texts.append(Text(f"{cell.value_text}{mark}", _STYLES[cell.verdict], no_wrap=True))
        elif isinstance(cell, Difference):
            texts.append(Text(cell.text, _STYLES[cell.verdict]))
        else:
            texts.append(Text(printable(cell or "")))
    return texts
