"""The command `cliptune`; one file for each group of commands."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from components.cli.commands import (
    evaluate,
    explore,
    import_folder,
    index,
    new,
    overview,
    params,
    registry,
    store,
    upgrade,
)
from components.cli.tables import say

# Commands import their packages when they run: `cliptune --help` must not wait for torch and MLflow.

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Promote encoders, show results, switch params.yaml between profiles. `dvc repro` runs the pipeline.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"cliptune {version('cliptune')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("init")(import_folder.import_folder)
app.command("caption")(import_folder.caption)
app.command("plan")(overview.plan)
app.command("report")(overview.report)
app.command("new")(new.new)
app.command("encoders")(evaluate.encoders)
app.command("evaluate")(evaluate.evaluate)
app.command("rank")(evaluate.rank)
app.command("table")(evaluate.table)
app.command("drift")(registry.drift)
app.command("explore")(explore.explore)
app.command("review")(explore.review)
app.command("tune")(params.tune)
app.command("promote")(registry.promote)
app.command("history")(registry.history)
app.command("lineage")(registry.lineage)
app.command("rollback")(registry.rollback)
app.command("export")(registry.export)
app.command("serve")(registry.serve)
app.command("doctor")(overview.doctor)
app.command("upgrade")(upgrade.upgrade)
app.add_typer(index.index, name="index")
app.add_typer(params.mix, name="mix")
app.add_typer(params.profile, name="profile")
app.add_typer(store.store, name="answers")
