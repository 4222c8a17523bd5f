"""`InputError`, the error of wrong input, and `run_command`, which prints it in one line for every stage."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import ParamSpec

from components.core.tables.files import full_disk

P = ParamSpec("P")
_JOINERS = "\u200c\u200d"
"""Of Persian and Indian words, and of emoji."""


class InputError(Exception):
    """An input of the user is wrong; the message is one line with the file, key or row and the fix."""


@contextmanager
def prefixed_errors(subject: str) -> Iterator[None]:
    """Prefix an `InputError` of this block with its subject, such as a key of params.yaml or an option."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{subject}: {error}") from None


def printable(text: str) -> str:
    """`text` for a terminal, on one line: control characters, and those that reorder a line, as escapes.

    >>> printable("a dog\x1b[2J\n\u202e")
    'a dog\\x1b[2J\\n\\u202e'
    """
    return "".join(sign if sign.isprintable() or sign in _JOINERS else ascii(sign)[1:-1] for sign in text)


def run_command(command: Callable[[], None]) -> None:
    """Run a stage's entry point.

    An `InputError`, a full disk and a path without permission become one line on stderr and exit code 1.
    """
    try:
        command()
    except InputError as error:
        print(f"error: {printable(' '.join(str(error).split()))}", file=sys.stderr)
        raise SystemExit(1) from None
    except OSError as error:
        if full_disk(error) is not None:
            fix = "free space on that disk"
        elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            fix = "get write permission or use a writable folder"
        else:
            raise
        print(
            f"error: {error.filename or 'a file'} cannot be written ({error.strerror}): {fix} and run the same command "
            "again; earlier files are unchanged",
            file=sys.stderr,
        )
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print("stopped; run the same command again to continue", file=sys.stderr)
        raise SystemExit(130) from None


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """A command whose errors are printed as by `run_command`."""

    @wraps(command)
    def run(*args: P.args, **options: P.kwargs) -> None:
        run_command(partial(command, *args, **options))

    return run
