"""Runs all checks at once, each in its own thread, so that a check that hangs delays no other."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from components.cli.doctor import machine, servers
from components.cli.doctor.check import CheckFunction, CheckResult, Installation, NoSettingsError, fail, not_used
from components.core.settings import PARAMS, load_settings
from components.core.system.errors import InputError
from components.core.tracking import shown_address

LIMIT_S = 60.0
"""Time limit of all checks together; imports take most of it on a busy machine."""

CHECKS: Mapping[str, CheckFunction] = {
    "params.yaml": machine.check_params,
    "versions": machine.check_versions,
    "Prefect API": servers.check_prefect,
    "work pools and workers": servers.check_workers,
    "tracking": servers.check_tracking,
    "registry": servers.check_registry,
    "DVC remote": servers.check_dvc_remote,
    "generation store": servers.check_generation_store,
    "LLM endpoint": servers.check_language_models,
    "GPU and driver": machine.check_gpu,
    "disk space": machine.check_disk,
    "data": machine.check_data,
}
"""Title -> check, in the order of the table."""


def read_installation(folder: Path, environment: Mapping[str, str] = os.environ) -> Installation:
    """The project in `folder`, with or without a readable params.yaml."""
    try:
        return Installation(environment, folder, load_settings(folder / PARAMS))
    except InputError as error:
        return Installation(environment, folder, None, str(error))


def examine(
    installation: Installation, limit: float = LIMIT_S, checks: Mapping[str, CheckFunction] = CHECKS
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
