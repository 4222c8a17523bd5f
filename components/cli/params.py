"""The commands `cliptune profile ...` and `cliptune mix tune`, which change params.yaml."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import typer

from components.cli.tables import AsJson, print_json, print_table, table_of
from components.core.system.project import require_project, run_in_project

if TYPE_CHECKING:
    from components.core.settings import Settings
    from components.study.search import MixSearchResult

profile = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Overlays of params.yaml in infra/profiles/.")
_Name = Annotated[str, typer.Argument(help="A file of infra/profiles/, without .yaml.")]


@profile.command("list")
def list_profiles(as_json: AsJson = False) -> None:
    """List the profiles with their purpose.

    Example: cliptune profile list
    """

    def command() -> None:
        from components.core.system.profiles import base_profile, description, profile_names

        require_project()
        descriptions = {name: description(name) for name in profile_names()}
        if as_json:
            print_json(descriptions)
            return
        table = table_of(("profile", "over", "purpose"))
        for name, text in descriptions.items():
            table.add_row(name, base_profile(name), text)
        print_table(table)

    run_in_project(command)


@profile.command("show")
def show_profile(name: _Name) -> None:
    """Print the file of a profile: its purpose, and the keys that it sets.

    Example: cliptune profile show toy
    """

    def command() -> None:
        from components.core.system.profiles import profile_text

        require_project()
        typer.echo(profile_text(name), nl=False)

    run_in_project(command)


@profile.command("apply")
def use_profile(
    name: _Name,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the changes; write nothing.")] = False,
) -> None:
    """Lay a profile over params.yaml; comments stay, and a result with unknown keys is refused.

    Examples: cliptune profile apply toy; cliptune profile apply toy --dry-run; git checkout params.yaml (to undo)
    """

    def command() -> None:
        from components.core.system import profiles

        text = profiles.overlaid(name)
        difference = profiles.difference(text)
        typer.echo(difference, nl=False)
        for notice in profiles.notices(name, text):
            typer.echo(notice, err=True)
        if not difference:
            typer.echo(f"params.yaml already holds profile '{name}'")
        elif not dry_run:
            profiles.write(text)
            typer.echo(
                f"params.yaml now holds profile '{name}'; `cliptune plan` shows what `dvc repro compare` would run"
            )

    run_in_project(command)


mix = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Encoders mixed of the weights of others.")


@mix.command("tune")
def search(
    members: Annotated[list[str], typer.Option("--from", help="An encoder to mix; give two or more.")],
    name: Annotated[str, typer.Option(help="Name of the entry of mixes that --write makes.")] = "all_needs",
    claims: Annotated[
        str, typer.Option(help="A file of infra/claims/, whose families of metrics the mix must serve.")
    ] = "papers",
    trials: Annotated[
        int, typer.Option(min=1, help="Number of mixes to try, including those of a stopped search.")
    ] = 60,
    store: Annotated[str, typer.Option(help="SQLAlchemy URL of Optuna's storage.")] = "",
    write: Annotated[bool, typer.Option("--write", help="Write the best mix into params.yaml.")] = False,
) -> None:
    """Search the shares of encoders' weights that serve all families of metrics best, on the validation split.

    A mix is as bad as its largest shortfall from the best encoder of a family. Each mix is an MLflow run below one
    parent.

    Examples: cliptune mix tune --from paraclip --from semclip --from laclip_ft; ... --trials 200 --write
    """

    def command() -> None:
        from components.core.system.checking import load_checked
        from components.study.rules import read_claims
        from components.study.search import STORE
        from components.study.search import search as run

        require_project()
        settings = load_checked()
        _check_mix(settings, name, members)
        outcome = run(settings, members, read_claims(claims).families, trials, store or STORE)
        _print_mix(outcome)
        if write:
            _write_mix(name, outcome)
        else:
            mix, weights = outcome.mix, ", ".join(map(str, outcome.mix.weights))
            typer.echo(f"for params.yaml, with {name} in compare_encoders (or use --write):")
            typer.echo(f"mixes:\n  {name}: {{a: {mix.a}, b: {mix.b}, weights: [{weights}]}}")

    run_in_project(command)


def _check_mix(settings: Settings, name: str, members: list[str]) -> None:
    """Refuse a search whose mix would not be valid in params.yaml."""
    from components.core.settings import Mix
    from components.core.system.checking import check_names
    from components.core.system.errors import InputError

    if len(members) < 2 or len(set(members)) < len(members):
        raise InputError("give two or more encoders to mix, each once: --from paraclip --from semclip")
    for first, second in pairwise(members):
        mix = Mix(a=first, b=second, weights=(0.5, 0.5))
        check_names(settings.model_copy(update={"mixes": settings.mixes | {name: mix}}))


def _print_mix(outcome: MixSearchResult) -> None:
    table = table_of(("need", "mix", "best encoder", "which"), title="On the validation split, times 100")
    for need, value in outcome.scores.items():
        best, encoder = outcome.best[need]
        table.add_row(need, f"{100 * value:.1f}", f"{100 * best:.1f}", encoder)
    print_table(table)
    typer.echo(f"largest shortfall {100 * outcome.shortfall:.1f}, the least of {outcome.trials} mixes")


def _write_mix(name: str, outcome: MixSearchResult) -> None:
    from components.core.settings import load_settings
    from components.core.system import profiles

    encoders = list(load_settings().compare_encoders)
    mix = outcome.mix.model_dump(mode="json")
    text = profiles.laid_over(
        [{"mixes": {name: mix}, "compare_encoders": [*encoders, *({name} - set(encoders))]}], name
    )
    typer.echo(profiles.difference(text), nl=False)
    profiles.write(text)
    typer.echo(f"params.yaml now has {name}; `dvc repro compare` makes it and scores it on the test split")
