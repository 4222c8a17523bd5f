"""The commands `cliptune profile ...`: list, show and apply overlays of params.yaml."""

from __future__ import annotations

from typing import Annotated

import typer

from components.cli.tables import AsJson, print_json, print_table, table_of
from components.core.project import require_project, run_in_project

profile = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Overlays of params.yaml in infra/profiles/.")


@profile.command("list")
def list_profiles(as_json: AsJson = False) -> None:
    """List the profiles and what each is for.

    Example: cliptune profile list
    """

    def command() -> None:
        from components.core.profiles import description, lies_over, profile_names

        require_project()
        told = {name: description(name) for name in profile_names()}
        if as_json:
            print_json(told)
            return
        table = table_of(("profile", "over", "what it is"))
        for name, text in told.items():
            table.add_row(name, lies_over(name), text)
        print_table(table)

    run_in_project(command)


@profile.command("show")
def show_profile(name: Annotated[str, typer.Argument(help="A file of infra/profiles/, without .yaml.")]) -> None:
    """Print a profile as it is written: what it is for, and the keys that it sets.

    Example: cliptune profile show toy
    """

    def command() -> None:
        from components.core.profiles import profile_text

        require_project()
        typer.echo(profile_text(name), nl=False)

    run_in_project(command)


@profile.command("use")
def use_profile(
    name: Annotated[str, typer.Argument(help="A file of infra/profiles/, without .yaml.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change; write nothing.")] = False,
) -> None:
    """Lay a profile over params.yaml; the comments stay, and a result with unknown keys is refused.

    Examples: cliptune profile use toy; cliptune profile use toy --dry-run; git checkout params.yaml (to undo)
    """

    def command() -> None:
        from components.core import profiles

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
