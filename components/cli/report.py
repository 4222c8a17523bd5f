"""The command `cliptune report`: the last comparison's table."""

from __future__ import annotations

from typing import Annotated

import typer

from components.cli.tables import AsJson, print_json
from components.core.project import run_in_project


def report(
    every: Annotated[bool, typer.Option("--all", help="Print all metrics, not the key metrics alone.")] = False,
    groups: Annotated[bool, typer.Option("--groups", help="Print all metrics, and those by group of queries.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the results table of the last comparison again.

    Examples: cliptune report; cliptune report --all; cliptune report --groups; cliptune report --json
    """

    def command() -> None:
        from components.core.settings import load_settings
        from components.evaluation.results import DEFAULT
        from components.report.comparison import long_table, read_csv
        from components.report.terminal import show

        settings = load_settings()
        if as_json:
            print_json(long_table(read_csv(DEFAULT.csv)))
            return
        show(read_csv(DEFAULT.csv), settings, every, groups)
        typer.echo(f"report: {DEFAULT.reports / 'comparison.html'}")

    run_in_project(command)
