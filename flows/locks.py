"""DVC's locks: two flows in one checkout wait for each other's stages instead of failing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from prefect.logging import get_run_logger

from components.processes import CommandError
from components.stage_graph import is_locked

PAUSE = 5.0
"""Seconds between two tries; a random half is added, so that many who wait do not come all at once."""


def when_free(work: Callable[[], None], what: str) -> None:
    """Do `work` that calls DVC, again and again while another run works on the same files.

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
        if not told:
            get_run_logger().info("%s waits for another run that works on the same files", what)
            told = True
        time.sleep(PAUSE * random.uniform(1, 1.5))
