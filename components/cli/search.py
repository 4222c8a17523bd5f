"""The command `cliptune search`: which mix of encoders serves all needs."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import typer

from components.cli.tables import print_table, table_of
from components.core.project import require_project, run_in_project

if TYPE_CHECKING:
    from components.core.settings import Settings
    from components.study.search import MixSearchResult


def search(
    members: Annotated[list[str], typer.Option("--from", help="An encoder to mix; give two or more.")],
    name: Annotated[str, typer.Option(help="Name of the entry of mixes that --write makes.")] = "all_needs",
    claims: Annotated[str, typer.Option(help="A file of infra/claims/, whose families are the needs.")] = "papers",
    trials: Annotated[int, typer.Option(min=1, help="How many mixes are tried, with those of a stopped search.")] = 60,
    store: Annotated[str, typer.Option(help="SQLAlchemy URL where Optuna keeps the search.")] = "",
    write: Annotated[bool, typer.Option("--write", help="Write the mix found into params.yaml.")] = False,
) -> None:
    """Search the shares of two encoders' weights that serve all needs best, on the validation split.

    A mix is as bad as its largest shortfall from a need's best encoder. Each mix is an MLflow run below one parent.

    Examples: cliptune search --from paraclip --from semclip --from laclip_ft; ... --trials 200 --write
    """

    def command() -> None:
        from components.core.checking import load_checked
        from components.study.rules import read_claims
        from components.study.search import STORE
        from components.study.search import search as run

        require_project()
        settings = load_checked()
        _check(settings, name, members)
        found = run(settings, members, read_claims(claims).families, trials, store or STORE)
        _show(found)
        _write(name, found) if write else _tell(name, found)

    run_in_project(command)


def _check(settings: Settings, name: str, members: list[str]) -> None:
    """Refuse a search whose mix could not stand in params.yaml."""
    from components.core.checking import check_names
    from components.core.errors import InputError
    from components.core.settings import Mix

    if len(members) < 2 or len(set(members)) < len(members):
        raise InputError("give two or more encoders to mix, each once: --from paraclip --from semclip")
    for first, second in pairwise(members):
        mix = Mix(first=first, second=second, shares=(0.5, 0.5))
        check_names(settings.model_copy(update={"mixes": settings.mixes | {name: mix}}))


def _show(found: MixSearchResult) -> None:
    table = table_of(("need", "mix", "best alone", "whose"), title="On the validation split, times 100")
    for need, value in found.scores.items():
        best, whose = found.best[need]
        table.add_row(need, f"{100 * value:.1f}", f"{100 * best:.1f}", whose)
    print_table(table)
    typer.echo(f"largest shortfall {100 * found.shortfall:.1f}, the least of {found.trials} mixes")


def _tell(name: str, found: MixSearchResult) -> None:
    mix = found.mix
    shares = ", ".join(map(str, mix.shares))
    typer.echo(f"for params.yaml, and {name} under encoders (or say --write):")
    typer.echo(f"mixes:\n  {name}: {{first: {mix.first}, second: {mix.second}, shares: [{shares}]}}")


def _write(name: str, found: MixSearchResult) -> None:
    from components.core import profiles
    from components.core.settings import load_settings

    encoders = list(load_settings().encoders)
    mix = found.mix.model_dump(mode="json")
    text = profiles.laid_over({"mixes": {name: mix}, "encoders": [*encoders, *({name} - set(encoders))]}, name)
    typer.echo(profiles.difference(text), nl=False)
    profiles.write(text)
    typer.echo(f"params.yaml now has {name}; `dvc repro compare` makes it and says what it is worth on the test split")
