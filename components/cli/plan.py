"""The command `cliptune plan`: which stages would run, and which data they would miss."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.cli.tables import AsJson, print_json, print_table, table_of
from components.core.project import run_in_project

if TYPE_CHECKING:
    from components.cli.planning import Planned

_COLOURS = {"runs": "yellow", "runs after others": "yellow", "up to date": "green"}


def plan(
    targets: Annotated[
        list[str] | None,
        typer.Argument(help="Stages of dvc.yaml, or groups such as `train`; `compare` when not given."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check params.yaml, and show which stages `dvc repro` would run and why.

    The exit code is 1 when a setting is wrong, or data that the stages need is missing.

    Examples: cliptune plan; cliptune plan train@paraclip; cliptune plan train --json
    """

    def command() -> None:
        from components.cli.planning import missing_data, unwatched
        from components.cli.planning import plan as planned
        from components.doctor.examine import surroundings

        stages = planned(targets or ["compare"])
        missing = missing_data(surroundings(Path()))
        if as_json:
            print_json([asdict(stage) for stage in stages])
        else:
            _print(stages)
        for notice in unwatched(stages):
            typer.echo(notice, err=True)
        for line in missing:
            typer.echo(f"missing: {line.detail}: {line.fix}", err=True)
        if missing:
            raise SystemExit(1)

    run_in_project(command)


def _print(stages: list[Planned]) -> None:
    from rich.markup import escape

    table = table_of(("stage", "state", "because of"))
    for one in stages:
        colour = _COLOURS[one.state]
        table.add_row(one.stage, f"[{colour}]{one.state}[/{colour}]", escape(one.why))
    print_table(table)
    runs = sum(one.state != "up to date" for one in stages)
    typer.echo(f"{runs} of {len(stages)} stages would run")
