"""`InputError`, the error of wrong input, and `run_command`, which prints it in one line for every stage."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from importlib.metadata import requires
from typing import NoReturn, ParamSpec

from components.core.tables.files import full_disk

P = ParamSpec("P")
_ADDRESS = re.compile(r"""(?<=://)(?:(?![\s(<"'=,][a-zA-Z][\w+.-]*://)[^\n])+""")
_SERVER = re.compile(r"""[^\s:/@]+:\d{2,5}(?:[\s),;:'"]|$)|(?:localhost|[^\s:/@]*\.[^\s:/@]*):\d{1,5}/""")
_LOGIN = re.compile(r"[^\s:/@\[]*:")
_HOST = re.compile(r"@(?:\[[\da-fA-F:]+\]|[^\s:/@?#\[\]]+)(?::\d|[/?#])")
_KEYS = re.compile(r"(?i)([?&;][\w-]*(?:passw|pwd|secret|token|key|sig|credential)[\w-]*=|\spass(?:word|wd)=)[^&\s]*")
_JOINERS = "\u200c\u200d"
"""Of Persian and Indian words, and of emoji."""


class InputError(Exception):
    """An input of the user is wrong; the message is one line with the file, key or row and the fix.

    Messages often quote addresses of settings and of libraries: they are kept as `shown_address` gives them.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(shown_address(message))


def shown_address(text: str) -> str:
    """An address, or a text with addresses, without users, passwords and keys, for records and messages.

    >>> shown_address("postgresql://me:pa/ss w@rd@host/shop?sslmode=require&passwd=x does not answer")
    'postgresql://***@host/shop?sslmode=require&passwd=*** does not answer'
    """
    return _ADDRESS.sub(_without_login, _KEYS.sub(r"\1***", text))


def _without_login(address: re.Match[str]) -> str:
    """What follows `://` without user and password, which may have any sign, also `@`, `/` and a blank."""
    rest = address[0]
    if _SERVER.match(rest):
        return rest
    hosts = list(_HOST.finditer(rest)) if _LOGIN.match(rest) else []
    if hosts:
        return f"***{rest[hosts[-1].start() :]}"
    # No port and no path show where the host is: the last `@` of the first word that has one.
    word = re.match(r"[^@]*\S*(?=@[^\s@])" if _LOGIN.match(rest) else r"\S*(?=@[^\s@])", rest)
    return f"***{rest[word.end() :]}" if word else rest


@contextmanager
def prefixed_errors(subject: str) -> Iterator[None]:
    """Prefix an `InputError` of this block with its subject, such as a key of params.yaml or an option."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{subject}: {error}") from None


def printable(text: str) -> str:
    """`text` for a terminal, on one line: control characters, and those that reorder a line, as escapes.

    >>> printable("a dog\x1b[2J\n\u202e")
    'a dog\\x1b[2J\\n\\u202e'
    """
    return "".join(sign if sign.isprintable() or sign in _JOINERS else ascii(sign)[1:-1] for sign in text)


def run_command(command: Callable[[], None]) -> None:
    """Run a stage's entry point.

    An `InputError`, a missing package of an extra, a full disk or memory and a path without permission become one line
    on stderr and exit code 1.
    """
    try:
        command()
    except InputError as error:
        _stop(printable(" ".join(str(error).split())))
    except ModuleNotFoundError as error:
        if (extra := _extra_of(error.name or "")) is None:
            raise
        _stop(f"package {error.name} is missing: install cliptune[{extra}]")
    except OSError as error:
        if full_disk(error) is not None:
            fix = "free space on that disk"
        elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            fix = "get write permission or use a writable folder"
        else:
            raise
        _stop(
            f"{error.filename or 'a file'} cannot be written ({error.strerror}): {fix} and run the same command "
            "again; earlier files are unchanged"
        )
    except MemoryError as error:
        # The frames of the error refer to the objects that filled the memory.
        error.__traceback__ = None
        fix = "free memory, or lower batch sizes and prepare.processes, and run the same command again"
        _stop(f"out of memory: {fix}; earlier files are unchanged")
    except KeyboardInterrupt:
        print("stopped; run the same command again to continue", file=sys.stderr)
        raise SystemExit(130) from None


def _stop(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(1) from None


def _extra_of(module: str) -> str | None:
    """The extra of pyproject.toml that installs a module, which must have the name of its package."""
    # Every command imports this file, and hardly any lacks a package.
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    package = canonicalize_name(module.partition(".")[0])
    found = (Requirement(line) for line in requires("cliptune") or ())
    markers = (str(one.marker) for one in found if one.marker and canonicalize_name(one.name) == package)
    return next((extra[1] for marker in markers if (extra := re.search(r'extra == "([\w-]+)"', marker))), None)


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """A command whose errors are printed as by `run_command`."""

    @wraps(command)
    def run(*args: P.args, **options: P.kwargs) -> None:
        run_command(partial(command, *args, **options))

    return run
