"""Runs all checks at once, each in its own thread, so that one that hangs delays no other."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from components.core.errors import InputError
from components.core.settings import PARAMS, load_settings
from components.doctor.check import Check, Finding, Surroundings, fail, not_used
from components.doctor.checks import all_checks
from components.tracking import shown_address

LIMIT = 60.0
"""Seconds for all checks together; imports take most of it on a busy machine."""


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    check: str
    status: str
    detail: str
    fix: str

    def as_json(self) -> dict[str, str]:
        """Names to values, under the table's headings."""
        return {"check": self.check, "status": self.status, "detail": self.detail, "fix": self.fix}


def surroundings(folder: Path, environment: Mapping[str, str] = os.environ) -> Surroundings:
    """The project in `folder`, whether its params.yaml can be read or not."""
    try:
        return Surroundings(environment, folder, load_settings(folder / PARAMS))
    except InputError as error:
        return Surroundings(environment, folder, None, str(error))


def examine(around: Surroundings, limit: float = LIMIT, checks: Mapping[str, Check] | None = None) -> list[Line]:
    """Run every check; one that raises, or has no answer within `limit` seconds, is a failure.

    Args:
        around: what the checks look at.
        limit: seconds for all of them.
        checks: file name -> check; all of `checks/` when not given.
    """
    chosen = sorted((all_checks() if checks is None else checks).values(), key=lambda check: check.place)
    answers: queue.Queue[tuple[str, Finding]] = queue.Queue()
    for check in chosen:
        # Daemons: one that hangs must not keep the command from ending.
        threading.Thread(target=lambda one=check: answers.put((one.title, _look(one, around))), daemon=True).start()
    findings: dict[str, Finding] = {}
    deadline = time.monotonic() + limit
    while len(findings) < len(chosen):
        try:
            title, finding = answers.get(timeout=max(deadline - time.monotonic(), 0.0))
        except queue.Empty:
            break
        findings[title] = finding
    late = fail(f"no answer within {limit:.0f} s", "see whether the machine or the server is overloaded; try again")
    lines = [(check.title, findings.get(check.title, late)) for check in chosen]
    # Addresses come from many settings and libraries, and any of them may hold a password.
    return [Line(title, found.status, shown_address(found.detail), shown_address(found.fix)) for title, found in lines]


def _look(check: Check, around: Surroundings) -> Finding:
    if check.needs_settings and around.loaded is None:
        return not_used("params.yaml cannot be read")
    try:
        return check.examine(around)
    except InputError as error:
        detail, _, fix = str(error).rpartition(": ")
        return fail(detail, fix)
    except Exception as error:  # a check must never hide the others
        reason = str(error).splitlines()[0] if str(error) else "no reason given"
        return fail(f"{type(error).__name__}: {reason}", "this is a fault of the check: report it")
