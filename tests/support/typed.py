"""`cliptune` as a user types it, in this process."""

from __future__ import annotations

from typer.testing import CliRunner

from components.cli import app


def cliptune(*arguments: str, code: int = 0, answer: str = "") -> str:
    """The output of a command that ends with this exit code; `answer` is typed at its question."""
    done = CliRunner().invoke(app, arguments, input=answer)
    assert done.exit_code == code, done.output
    return done.output
