"""Two flows in one checkout wait for each other's stages instead of failing."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from prefect.logging import get_run_logger

from components.core.processes import CommandError
from components.core.stage_graph import is_locked

PAUSE = 5.0
"""Seconds between two tries; a random half is added, so that many who wait do not come all at once."""
_HOLDER = re.compile(r"\(PID (\d+)\):")
_DAMAGED = re.compile(r"Unable to read RWLock-file|RWLock-file \S+ format error")
_FIX = "remove .dvc/tmp/rwlock while no DVC works in this checkout, and run the flow again"


def when_free(work: Callable[[], None], what: str) -> None:
    """Do `work` that calls DVC, again and again while another run works on the same files.

    DVC itself takes out locks of processes that are dead. It stays blocked by one whose number is another's by now, as
    after a container's restart, or whose exit code nobody has asked for, and cannot read a list of locks that a killed
    process left half written: these end the stage with a line that says what to do.

    Raises:
        CommandError: it failed for another reason, or would wait for ever.
    """
    ended: set[int] = set()
    told = False
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
        # Twice, for a process that has just ended is waited for, or passed over by DVC, a moment later.
        if stale := before & ended:
            raise CommandError(f"error: .dvc/tmp/rwlock names process {min(stale)}, which is no DVC by now: {_FIX}")
        if not told:
            names = ", ".join(map(str, sorted(holders))) or "unknown"
            get_run_logger().info("%s waits for another run that works on the same files (process %s)", what, names)
            told = True
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
