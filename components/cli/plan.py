"""The command `cliptune plan`: which stages would run, and which data they would miss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.cli.costs import print_costs
from components.cli.tables import AsJson, print_json, print_table, table_of
from components.core.errors import InputError
from components.core.project import run_in_project

if TYPE_CHECKING:
    from components.cli.planning import Planned
    from components.costing.cost import Cost

_COLOURS = {"runs": "yellow", "runs after others": "yellow", "up to date": "green"}
_SHOWN = 3
"""Changes of a stage in the table."""


def plan(
    targets: Annotated[
        list[str] | None,
        typer.Argument(help="Stages of dvc.yaml, or groups such as `train`; `compare` when not given."),
    ] = None,
    cost: Annotated[
        bool, typer.Option("--cost", help="Also what these stages take: questions, tokens, time, memory, disk.")
    ] = False,
    rates: Annotated[
        Path | None, typer.Option(help="With --cost: rates of another machine, keys of components/costing/rates.yaml.")
    ] = None,
    prices: Annotated[
        tuple[float, float] | None,
        typer.Option(help="With --cost: price of a million input and of a million output tokens of a hosted model."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check params.yaml, and show which stages `dvc repro compare` would run and why.

    With --cost, prompts without a stored answer are counted, and rates of a machine are multiplied by counts.
    The exit code is 1 when a setting is wrong, or data that the stages need is missing.

    Examples: cliptune plan; cliptune plan train@paraclip; cliptune plan train --json; cliptune plan --cost;
    cliptune plan --cost --rates cluster.yaml --prices 0.15 0.6
    """

    def command() -> None:
        from components.cli.planning import missing_data, unwatched
        from components.cli.planning import plan as planned
        from components.doctor.examine import surroundings

        if not cost and (rates or prices):
            raise InputError("--rates and --prices are for --cost: give it too")
        stages = planned(targets or ["compare"])
        missing = missing_data(surroundings(Path()))
        if cost:
            costs = _costs(stages, rates, prices)
            if as_json:
                print_json([asdict(one) for one in costs])
            else:
                print_costs(costs)
        elif as_json:
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


def _costs(stages: list[Planned], rates: Path | None, prices: tuple[float, float] | None) -> Sequence[Cost]:
    """Of the stages that would run."""
    from components.core.settings import load_settings
    from components.costing.cost import Costing, Prices
    from components.costing.rates import load_rates

    costing = Costing(load_settings(), load_rates(rates), Prices(*prices) if prices else None)
    return costing.of([one.stage for one in stages if one.state != "up to date"])


def _some(why: str) -> str:
    """The first changes of a stage; `--json` has all."""
    changes = why.split(", ")
    rest = len(changes) - _SHOWN
    return why if rest <= 0 else f"{', '.join(changes[:_SHOWN])} and {rest} more"


def _print(stages: list[Planned]) -> None:
    from rich.markup import escape

    table = table_of(("stage", "state", "because of"))
    for one in stages:
        colour = _COLOURS[one.state]
        table.add_row(one.stage, f"[{colour}]{one.state}[/{colour}]", escape(_some(one.why)))
    print_table(table)
    runs = sum(one.state != "up to date" for one in stages)
    typer.echo(f"{runs} of {len(stages)} stages would run")
