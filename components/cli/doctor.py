"""The command `cliptune doctor`: what of this installation works, and how to mend what does not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.project import run_in_project

if TYPE_CHECKING:
    from components.doctor.examine import Line

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red", "not used": "dim"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list instead of a table.")] = False,
) -> None:
    """Look at servers, stores, GPU, disk, versions and clock; the exit code is 1 when something has failed.

    Examples: cliptune doctor; cliptune doctor --json
    """

    def command() -> None:
        from components.doctor.examine import examine, surroundings

        lines = examine(surroundings(Path()))
        if as_json:
            import json

            typer.echo(json.dumps([line.as_json() for line in lines], indent=2))
        else:
            _print(lines)
        if any(line.status == "fail" for line in lines):
            raise SystemExit(1)

    run_in_project(command)


def _print(lines: list[Line]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for column in ("", "state", "found", "mend"):
        table.add_column(column, overflow="fold", no_wrap=column == "state")
    for line in lines:
        colour = _COLOURS[line.status]
        table.add_row(line.check, f"[{colour}]{line.status}[/{colour}]", escape(line.detail), escape(line.mend))
    Console().print(table)
    counts = {status: sum(line.status == status for line in lines) for status in _COLOURS}
    typer.echo(", ".join(f"{count} {status}" for status, count in counts.items() if count))
