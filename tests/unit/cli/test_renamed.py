"""An old command or option is refused with the new one."""

from __future__ import annotations

from typer.testing import CliRunner

from components.cli import app
from components.cli.renamed import COMMANDS, OPTIONS


def test_old_commands_and_options_name_the_new_ones() -> None:
    cases = [(old.split(), new) for old, new in COMMANDS.items()]
    cases += [([*command.split(), option], new) for (command, option), new in OPTIONS.items()]
    cases += [([*command.split(), f"{option}=1"], new) for (command, option), new in OPTIONS.items()]
    for arguments, new in cases:
        done = CliRunner().invoke(app, arguments)
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), arguments
        assert f"is now {new}" in done.stderr or f"is now `cliptune {new}`" in done.stderr


def test_the_new_names_exist() -> None:
    for new in [*COMMANDS.values(), "lineage"]:
        assert CliRunner().invoke(app, [*new.split(), "--help"]).exit_code == 0, new
    for (command, _), new in OPTIONS.items():
        if new.startswith("--"):
            assert new in CliRunner().invoke(app, [*command.split(), "--help"], terminal_width=200).output
