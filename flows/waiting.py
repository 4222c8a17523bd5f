"""Waits for DVC's locks, so that two flows in one checkout wait for each other's stages instead of failing."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from prefect.logging import get_run_logger

from components.core.system.processes import CommandError
from components.core.system.stage_graph import is_locked

PAUSE = 5.0
"""Seconds between two tries; a random half is added, so that waiting flows do not all try at once."""
_HOLDER = re.compile(r"\(PID (\d+)\):")
_DAMAGED = re.compile(r"Unable to read RWLock-file|RWLock-file \S+ format error")
_FIX = "remove .dvc/tmp/rwlock while no DVC runs in this checkout, and run the flow again"


def when_free(work: Callable[[], None], name: str) -> None:
    """Run `work`, which calls DVC, and repeat it while another run has locked the same files.

    DVC itself removes locks of dead processes. Two cases block it for ever: the number of a dead process now belongs to
    another process, or a killed process left its list of locks half written. Both end the stage with an instruction.

    Raises:
        CommandError: it failed for another reason, or would wait for ever.
    """
    ended: set[int] = set()
    is_logged = False
    while True:
        try:
            return work()
        except CommandError as error:
            if _DAMAGED.search(str(error)):
                raise CommandError(
                    f"error: .dvc/tmp/rwlock was left half written by a killed process: {_FIX}"
                ) from None
            if not is_locked(str(error)):
                raise
            holders = {int(number) for number in _HOLDER.findall(str(error))}
        before, ended = ended, {number for number in holders if not _is_dvc(number)}
        # Two looks, because DVC removes the lock of a process that has just ended a moment later.
        if stale := before & ended:
            raise CommandError(f"error: .dvc/tmp/rwlock names process {min(stale)}, which is not DVC: {_FIX}")
        if not is_logged:
            numbers = ", ".join(map(str, sorted(holders))) or "unknown"
            get_run_logger().info("%s waits for another run that uses the same files (process %s)", name, numbers)
            is_logged = True
        time.sleep(PAUSE * random.uniform(1, 1.5))


def _is_dvc(number: int) -> bool:
    try:
        process = psutil.Process(number)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return any(Path(part).name in ("dvc", "dvc.exe") for part in process.cmdline())
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
