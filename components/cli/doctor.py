"""The command `cliptune doctor`: checks the installation and says how to fix what does not work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from components.cli.tables import AsJson, print_json, print_table, table_of
from components.core.project import run_in_project

if TYPE_CHECKING:
    from components.doctor.examine import Line

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red", "not used": "dim"}


def doctor(
    as_json: AsJson = False,
) -> None:
    """Look at servers, stores, GPU, disk, versions and clock; the exit code is 1 when something has failed.

    Examples: cliptune doctor; cliptune doctor --json
    """

    def command() -> None:
        from components.doctor.examine import examine, surroundings

        lines = examine(surroundings(Path()))
        if as_json:
            print_json([line.as_json() for line in lines])
        else:
            _print(lines)
        if any(line.status == "fail" for line in lines):
            raise SystemExit(1)

    run_in_project(command)


def _print(lines: list[Line]) -> None:
    from rich.markup import escape

    table = table_of(("", "state", "found", "fix"))
    for line in lines:
        colour = _COLOURS[line.status]
        table.add_row(line.check, f"[{colour}]{line.status}[/{colour}]", escape(line.detail), escape(line.fix))
    print_table(table)
    counts = {status: sum(line.status == status for line in lines) for status in _COLOURS}
    typer.echo(", ".join(f"{count} {status}" for status, count in counts.items() if count))
