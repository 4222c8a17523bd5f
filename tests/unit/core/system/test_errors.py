"""`run_command` turns errors that a user can mend into one line."""

from __future__ import annotations

import errno
import os

import pytest

from components.core.system.errors import InputError, run_command


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (InputError("params.yaml: key 'a':\n  wrong"), "error: params.yaml: key 'a': wrong"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x"), "error: x cannot be written (No space left on device)"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "x"), "error: x cannot be written (Read-only file system)"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "x"), "error: x cannot be written (Permission deni"),
    ],
)
def test_one_line_and_code_one(error: Exception, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(SystemExit, match="1"):
        run_command(fail)
    said = capsys.readouterr().err
    assert said.startswith(line)
    assert said.count("\n") == 1


def test_other_errors_are_not_hidden() -> None:
    def fail() -> None:
        raise FileNotFoundError(errno.ENOENT, "missing", "x")

    with pytest.raises(FileNotFoundError):
        run_command(fail)
