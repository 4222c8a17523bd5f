"""`run_command` turns errors that a user can mend into one line."""

from __future__ import annotations

import errno
import os
from functools import partial

import pytest

from components.core.system.errors import InputError, run_command


def test_errors_that_users_can_fix_are_one_line_and_others_are_raised(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(error: Exception) -> None:
        raise error

    written = "error: x cannot be written"
    for error, line in (
        (InputError("params.yaml: key 'a':\n  wrong"), "error: params.yaml: key 'a': wrong"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x"), f"{written} (No space left on device)"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "x"), f"{written} (Read-only file system)"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "x"), f"{written} (Permission deni"),
    ):
        with pytest.raises(SystemExit, match="1"):
            run_command(partial(fail, error))
        output = capsys.readouterr().err
        assert output.startswith(line)
        assert output.count("\n") == 1
    with pytest.raises(FileNotFoundError):
        run_command(partial(fail, FileNotFoundError(errno.ENOENT, "missing", "x")))
