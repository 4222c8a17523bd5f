"""Output of commands (tables, which are complete in a pipe, JSON, sizes, times, new files), and names of encoders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from components.core.system.errors import InputError, printable
from components.core.system.project import from_root

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
"""The option of every command that prints a table."""
Device = Annotated[str, typer.Option(help="auto (the GPU if there is one), cpu, cuda, or one of several: cuda:1.")]
"""The option of every command that embeds texts or pictures."""
Yes = Annotated[bool, typer.Option("--yes", help="Delete without a question.")]
PIPE_WIDTH = 80
"""Width, without a terminal, of tables whose cells are sentences."""


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print lines of text: names of files and captions in them may hold signs that a terminal obeys."""
    typer.echo(_printable(text), err=err, nl=nl)


def print_rows(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | tuple[str, str]]],
    title: str = "",
    numbers: Sequence[str] = (),
    widest: int = 1_000_000,
) -> None:
    """Print a table, as `say`; too wide cells continue in the next line, but not those of `stage` and of `numbers`.

    Args:
        rows: texts, or pairs of a text and its colour.
        numbers: columns that are aligned to the right.
        widest: largest width without a terminal.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(_printable(title)) if title else None, title_justify="left")
    for column in columns:
        whole = column in ("stage", *numbers)
        table.add_column(column, overflow="fold", justify="right" if column in numbers else "left", no_wrap=whole)
    for row in rows:
        pairs = [(cell, "") if isinstance(cell, str) else cell for cell in row]
        table.add_row(*(Text(_printable(text), style) for text, style in pairs))
    console = Console()
    (console if console.is_terminal else Console(width=widest)).print(table)


def _printable(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def print_json(content: Any) -> None:
    """Print `content` as JSON, for other programs."""
    typer.echo(as_json_text(content))


def as_json_text(content: Any) -> str:
    """`content` as JSON; endless numbers and NaN, as of missing intervals, are null."""
    from pydantic import TypeAdapter

    return TypeAdapter(Any).dump_json(content, indent=2).decode()


def shown_size(size: float) -> str:
    """A size in bytes in a readable unit.

    >>> shown_size(8_100_000)
    '8.1 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def shown_time(seconds: float) -> str:
    """A duration in a readable unit.

    >>> shown_time(150)
    '2.5 min'
    """
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


def new_file(path: Path) -> Path:
    """The path of a file to write, relative to the project's folder."""
    place = from_root(path)
    if place.exists() or place.is_symlink():
        raise InputError(f"{path} exists: name a new file, or remove it")
    return place


def confirm(question: str, yes: bool) -> None:
    """Ask before a command deletes something, unless `yes`; raises InputError without the answer y."""
    with suppress(typer.Abort):
        if yes or typer.confirm(question):
            return
    raise InputError("nothing was removed: answer y, or add --yes")


def encoder_names(names: Sequence[str]) -> list[str]:
    """The names of encoders, with folders relative to the project's folder."""
    from components.registry.encoder_names import check_name, name_from_root

    places = [name_from_root(name) for name in names]
    for place in places:
        check_name(place)
    return places
