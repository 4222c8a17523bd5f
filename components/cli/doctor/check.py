"""The input and the result of a check, and the run of all: each in a thread, so that one that hangs delays no other."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from components.core.settings import PARAMS, Settings, load_settings
from components.core.system.errors import InputError, shown_address

TIMEOUT_S = 5.0
"""Time limit of one request."""
LIMIT_S = 60.0
"""Time limit of all checks together; imports take most of it on a busy machine."""


class NoSettingsError(InputError):
    """params.yaml cannot be read."""


@dataclass(frozen=True)
class CheckResult:
    """The result of the check with the title `check`; `fix` is the instruction if something is wrong."""

    status: Literal["ok", "warn", "fail", "not used"]
    detail: str
    fix: str = ""
    check: str = ""


@dataclass(frozen=True)
class Installation:
    """The input of all checks.

    Attributes:
        loaded: params.yaml; None if it cannot be read.
    """

    environment: Mapping[str, str]
    folder: Path
    loaded: Settings | None
    fault: str = ""

    @property
    def settings(self) -> Settings:
        """params.yaml; raises `NoSettingsError` if it cannot be read."""
        if self.loaded is None:
            raise NoSettingsError(self.fault)
        return self.loaded


CheckFunction = Callable[[Installation], CheckResult]
"""A check; an `InputError` is a failure, and the end of its message is the fix."""


ok, not_used = partial(CheckResult, "ok"), partial(CheckResult, "not used")
"""Nothing to do, and what this installation does not use; with the detail."""
warn, fail = partial(CheckResult, "warn"), partial(CheckResult, "fail")
"""It works with a limitation, or is required and does not work; with the detail and the fix."""


def read_installation(folder: Path, environment: Mapping[str, str] = os.environ) -> Installation:
    """The project in `folder`, with or without a readable params.yaml."""
    try:
        return Installation(environment, folder, load_settings(folder / PARAMS))
    except InputError as error:
        return Installation(environment, folder, None, str(error))


def examine(
    installation: Installation, checks: Mapping[str, CheckFunction], limit: float = LIMIT_S
) -> list[CheckResult]:
    """Run every check; a check that raises, or has no result within `limit` seconds in all, has failed."""
    ended: queue.Queue[tuple[str, CheckResult]] = queue.Queue()

    def run(title: str, check: CheckFunction) -> None:
        ended.put((title, _result(check, installation)))

    for check in checks.items():
        # Daemons: a check that hangs must not keep the command from ending.
        threading.Thread(target=run, args=check, daemon=True).start()
    late = fail(f"no answer within {limit:.0f} s", "check whether the machine or the server is overloaded; try again")
    results = dict.fromkeys(checks, late)
    deadline = time.monotonic() + limit
    with suppress(queue.Empty):
        for _ in checks:
            title, result = ended.get(timeout=max(deadline - time.monotonic(), 0.0))
            results[title] = result
    # Addresses come from many settings and libraries, and any of them may contain a password.
    return [
        replace(result, check=title, detail=shown_address(result.detail), fix=shown_address(result.fix))
        for title, result in results.items()
    ]


def _result(check: CheckFunction, installation: Installation) -> CheckResult:
    try:
        return check(installation)
    except NoSettingsError:
        return not_used("params.yaml cannot be read")
    except ModuleNotFoundError as error:
        return not_used(f"package {error.name} is not installed")
    except InputError as error:
        detail, _, fix = str(error).rpartition(": ")
        return fail(detail, fix)
    except Exception as error:  # a check must never hide the others
        reason = str(error).splitlines()[0] if str(error) else "no message"
        return fail(f"{type(error).__name__}: {reason}", "this is a fault of the check: report it")
