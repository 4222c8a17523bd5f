"""How a failed command is reported, signals to a whole process group, and processes that end with their parent."""

from __future__ import annotations

import os
import signal
import threading
import time

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


def end_with_parent(parent: int) -> None:
    """Have this process end once `parent` is no longer its parent, which may have been killed."""
    threading.Thread(target=_end_with, args=(parent,), name="parent", daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE)
    os.kill(os.getpid(), signal.SIGKILL)
