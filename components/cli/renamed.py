"""Commands and options of earlier versions: an error names the new one."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

COMMANDS = {
    "import": "init",
    "store": "answers",
    "search": "mix tune",
    "profile use": "profile apply",
}
"""Old command -> new command."""

OPTIONS = {
    ("table", "--against"): "--baseline",
    ("evaluate", "--again"): "--overwrite",
    ("evaluate", "--option"): "--benchmark-option",
    ("evaluate", "--data"): "--data-dir",
    ("init", "--over"): "--extends",
    ("serve", "--texts"): "--max-texts",
    ("serve", "--queue"): "--max-queue",
    ("serve", "--batch"): "--batch-size",
    ("serve", "--any-tower"): "--allow-tower-change",
    ("serve", "--poll"): "--poll-seconds",
    ("history", "--of"): "`cliptune lineage`",
}
"""Command and old option -> the new option, or the new command."""


class Commands(TyperGroup):
    """The commands of `cliptune`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As for every group, after the check for commands and options of earlier versions."""
        if new := _renamed(args):
            typer.echo(f"error: {new}", err=True)
            raise SystemExit(2)
        return super().parse_args(ctx, args)


def _renamed(args: list[str]) -> str:
    """What to type instead, or nothing."""
    for length in (1, 2):
        old = " ".join(args[:length])
        if old in COMMANDS:
            return f"`cliptune {old}` is now `cliptune {COMMANDS[old]}`"
        for argument in args[length:]:
            option = argument.partition("=")[0]
            if (old, option) in OPTIONS:
                return f"{option} of `cliptune {old}` is now {OPTIONS[old, option]}"
    return ""
