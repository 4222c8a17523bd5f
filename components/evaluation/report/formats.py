"""Results tables as Markdown, CSV and HTML, and the self-contained pages around them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from components.core.tables.files import atomic_file
from components.evaluation.scoring.result_table import Cell, Difference, ResultTable, signed, span_text

_TEMPLATES = Path(__file__).parent / "templates"


def to_markdown(tables: Sequence[ResultTable]) -> str:
    """A heading and a table for each, then their notes."""
    lines = []
    for table in tables:
        lines += [f"## {_escaped(table.title)}", "", _line(table.columns)]
        lines.append(_line(("---", *("---:" if is_number else "---" for is_number in table.is_number))))
        for row in table.rows:
            texts = (cell if isinstance(cell, str) else cell.text if cell else "" for cell in row.cells)
            lines.append(_line((row.label, *texts)))
        lines.append("")
    return "\n".join([*lines, _notes(tables)]) + "\n"


def _line(columns: Sequence[str]) -> str:
    return f"| {' | '.join(map(_escaped, columns))} |"


def _escaped(text: str) -> str:
    """A name or a sentence, of which nothing ends a cell or begins HTML."""
    return " ".join(text.split()).replace("|", r"\|").replace("<", r"\<")


def to_csv(tables: Sequence[ResultTable]) -> str:
    """One line per table, row and column with a value."""
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow(("table", "encoder", "source", "column", "value", "half_width"))
    for table in tables:
        for row in table.rows:
            for column, cell in zip(table.columns[1:], row.cells, strict=True):
                if isinstance(cell, Cell | Difference):
                    scale = cell.scale if isinstance(cell, Cell) else 100
                    half = f"{scale * cell.value.half_width:.4f}" if cell.value.is_known else ""
                    writer.writerow(
                        (table.title, row.name, row.source, column, f"{scale * cell.value.value:.4f}", half)
                    )
    return stream.getvalue()


def to_html(tables: Sequence[ResultTable], title: str = "Published benchmarks") -> str:
    """One self-contained page."""
    return render("results.html.j2", title=title, tables=tables, notes=_notes(tables))


FORMATS: Mapping[str, Callable[[Sequence[ResultTable]], str]] = {
    "csv": to_csv, "markdown": to_markdown, "html": to_html
}  # fmt: skip


def render(template: str, folder: Path = _TEMPLATES, **content: Any) -> str:
    """A page from a template of `folder`, which may use the templates, styles and scripts of this package."""
    environment = Environment(
        loader=FileSystemLoader([folder, _TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shared = {"asset": lambda name: Markup((_TEMPLATES / name).read_text("utf-8")), "plotly": _plotly}
    return environment.get_template(template).render(**shared, signed=signed, span_text=span_text, **content)


def write_text(path: Path, text: str) -> None:
    """Write a page or a table completely or not at all."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _plotly() -> Markup:
    """The source of the plotting library."""
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs())


def _notes(tables: Sequence[ResultTable]) -> str:
    return " ".join(dict.fromkeys(note for table in tables for note in table.notes))
