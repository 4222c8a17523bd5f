"""The error of a failed command, signals to process groups, and processes that end with their parent."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

_LOOK_EVERY, _GRACE = 1.0, 30.0
"""Seconds between checks of the parent, and between SIGTERM and SIGKILL."""


class CommandError(Exception):
    """A command failed; the message has its last lines."""


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; False if the group is empty. Signal 0 only checks that."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def end_with_parent(lives: Callable[[], bool]) -> None:
    """End this process when its parent no longer `lives`, for example because it was killed."""
    threading.Thread(target=_end_with, args=(lives,), name="parent", daemon=True).start()


def _end_with(lives: Callable[[], bool]) -> None:
    while lives():
        time.sleep(_LOOK_EVERY)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE)
    os.kill(os.getpid(), signal.SIGKILL)
