"""The command `cliptune report`: the last comparison's table."""

from __future__ import annotations

from typing import Annotated

import typer

from components.cli.tables import AsJson, print_json
from components.core.project import run_in_project


def report(
    groups: Annotated[bool, typer.Option("--groups", help="Also print the metrics by group of queries.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the results table of the last comparison again.

    Examples: cliptune report; cliptune report --groups
    """

    def command() -> None:
        from components.core.settings import load_settings
        from components.evaluation.folders import DEFAULT
        from components.report.comparison.as_columns import long_table
        from components.report.comparison.as_csv import read
        from components.report.terminal import print_comparison

        settings = load_settings()
        if as_json:
            print_json(long_table(read(DEFAULT.csv)))
            return
        print_comparison(read(DEFAULT.csv), settings.promote.primary, groups)
        typer.echo(f"report: {DEFAULT.reports / 'comparison.html'}")

    run_in_project(command)
