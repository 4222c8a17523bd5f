"""DVC's locks: two flows in one checkout wait for each other's stages instead of failing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from prefect.logging import get_run_logger

from components.core.errors import InputError
from components.core.processes import CommandError
from components.core.stage_graph import is_locked
from components.sweeping.dvc_locks import sweep_locks

PAUSE = 5.0
"""Seconds between two tries; a random half is added, so that many who wait do not come all at once."""


def when_free(work: Callable[[], None], what: str) -> None:
    """Do `work` that calls DVC, again and again while another run works on the same files.

    Locks of a process that was killed are taken out: DVC itself waits for ever for one whose number is another's by
    now, as after a container's restart, or whose exit code nobody has asked for.

    Raises:
        CommandError: it failed for another reason.
    """
    told = False
    while True:
        try:
            return work()
        except CommandError as error:
            if not is_locked(str(error)):
                raise
        if _free_from_the_dead():
            continue
        if not told:
            get_run_logger().info("%s waits for another run that works on the same files", what)
            told = True
        time.sleep(PAUSE * random.uniform(1, 1.5))


def _free_from_the_dead() -> bool:
    """Whether there were locks of dead processes, which are gone now."""
    try:
        findings = sweep_locks(dry_run=False)
    except InputError:
        # A process of DVC is at work on the list of locks.
        return False
    for finding in findings:
        get_run_logger().info("%s: %s: %s", finding.subject, finding.reason, finding.done)
    return any(not finding.done.startswith("left") for finding in findings)
