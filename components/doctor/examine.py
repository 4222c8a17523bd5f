"""Runs all checks at once, each in its own thread, so that a check that hangs delays no other."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.core.settings import PARAMS, load_settings
from components.core.system.errors import InputError
from components.doctor import machine, servers
from components.doctor.check import Check, CheckResult, Installation, fail, not_used
from components.tracking import shown_address

LIMIT_S = 60.0
"""Time limit of all checks together; imports take most of it on a busy machine."""

CHECKS = (
    Check("params.yaml", machine.check_params),
    Check("versions", machine.check_versions),
    Check("Prefect API", servers.check_prefect),
    Check("work pools and workers", servers.check_workers),
    Check("tracking", servers.check_tracking),
    Check("registry", servers.check_registry, needs_settings=True),
    Check("DVC remote", servers.check_dvc_remote),
    Check("S3", servers.check_s3),
    Check("generation store", servers.check_generation_store, needs_settings=True),
    Check("LLM endpoint", servers.check_language_models, needs_settings=True),
    Check("GPU and driver", machine.check_gpu),
    Check("disk space", machine.check_disk),
    Check("clock", servers.check_clock),
    Check("data", machine.check_data, needs_settings=True),
)
"""All checks in the order of the table."""


@dataclass(frozen=True)
class CheckLine:
    """One line of the table."""

    check: str
    status: str
    detail: str
    fix: str


def read_installation(folder: Path, environment: Mapping[str, str] = os.environ) -> Installation:
    """The project in `folder`, with or without a readable params.yaml."""
    try:
        return Installation(environment, folder, load_settings(folder / PARAMS))
    except InputError as error:
        return Installation(environment, folder, None, str(error))


def examine(installation: Installation, limit: float = LIMIT_S, checks: Sequence[Check] = CHECKS) -> list[CheckLine]:
    """Run every check; a check that raises, or has no result within `limit` seconds in all, has failed."""
    ended: queue.Queue[tuple[str, CheckResult]] = queue.Queue()
    for check in checks:
        # Daemons: a check that hangs must not keep the command from ending.
        threading.Thread(target=_run, args=(check, installation, ended), daemon=True).start()
    results: dict[str, CheckResult] = {}
    deadline = time.monotonic() + limit
    while len(results) < len(checks):
        try:
            title, result = ended.get(timeout=max(deadline - time.monotonic(), 0.0))
        except queue.Empty:
            break
        results[title] = result
    late = fail(f"no answer within {limit:.0f} s", "check whether the machine or the server is overloaded; try again")
    lines = [(check.title, results.get(check.title, late)) for check in checks]
    # Addresses come from many settings and libraries, and any of them may contain a password.
    return [CheckLine(title, one.status, shown_address(one.detail), shown_address(one.fix)) for title, one in lines]


def _run(check: Check, installation: Installation, ended: queue.Queue[tuple[str, CheckResult]]) -> None:
    ended.put((check.title, _result(check, installation)))


def _result(check: Check, installation: Installation) -> CheckResult:
    if check.needs_settings and installation.loaded is None:
        return not_used("params.yaml cannot be read")
    try:
        return check.run(installation)
    except InputError as error:
        detail, _, fix = str(error).rpartition(": ")
        return fail(detail, fix)
    except Exception as error:  # a check must never hide the others
        reason = str(error).splitlines()[0] if str(error) else "no message"
        return fail(f"{type(error).__name__}: {reason}", "this is a fault of the check: report it")
