"""How a failed command is reported, signals to a whole process group, and processes that end with their parent."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

_LOOK_EVERY, _GRACE = 1.0, 30.0
"""Seconds between looks at the parent, and until a process that does not end by itself is killed."""


class CommandError(Exception):
    """A command ended with an error; the message carries its last lines."""


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; False when no process is left in it. Signal 0 only asks."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def end_with_parent(lives: Callable[[], bool]) -> None:
    """Have this process end once its parent, which may have been killed, no longer `lives`."""
    threading.Thread(target=_end_with, args=(lives,), name="parent", daemon=True).start()


def _end_with(lives: Callable[[], bool]) -> None:
    while lives():
        time.sleep(_LOOK_EVERY)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE)
    os.kill(os.getpid(), signal.SIGKILL)
