"""The command `cliptune plan`: which stages would run, and which data they would miss."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.project import run_in_project

if TYPE_CHECKING:
    from components.planning import Planned

_COLOURS = {"runs": "yellow", "runs after others": "yellow", "up to date": "green"}


def plan(
    targets: Annotated[
        list[str] | None,
        typer.Argument(help="Stages of dvc.yaml, or groups such as `train`; `compare` when not given."),
    ] = None,
) -> None:
    """Check params.yaml, and show which stages `dvc repro` would run and why.

    The exit code is 1 when a setting is wrong, or data that the stages need is missing.

    Examples: cliptune plan; cliptune plan train@paraclip
    """

    def command() -> None:
        from components.doctor.examine import surroundings
        from components.planning import missing_data
        from components.planning import plan as planned

        stages = planned(targets or ["compare"])
        missing = missing_data(surroundings(Path()))
        _print(stages)
        for line in missing:
            typer.echo(f"missing: {line.detail}: {line.mend}", err=True)
        if missing:
            raise SystemExit(1)

    run_in_project(command)


def _print(stages: list[Planned]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for column in ("stage", "state", "because of"):
        table.add_column(column, overflow="fold", no_wrap=column == "state")
    for one in stages:
        colour = _COLOURS[one.state]
        table.add_row(one.stage, f"[{colour}]{one.state}[/{colour}]", escape(one.why))
    Console().print(table)
    runs = sum(one.state != "up to date" for one in stages)
    typer.echo(f"{runs} of {len(stages)} stages would run")
