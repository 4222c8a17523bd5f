"""The error of a failed command, supervised commands, and processes that end with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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


def supervised(command: Sequence[str], grace_s: float) -> list[str]:
    """The command line that runs `command` under `supervisor.py` for this process, with so many seconds to end."""
    supervisor = str(Path(__file__).with_name("supervisor.py"))
    return [sys.executable, "-P", supervisor, str(os.getpid()), str(grace_s), *command]


def end(process: subprocess.Popen[Any], within_s: float) -> None:
    """End a supervised command with all its processes; kill them if they still run after `within_s` seconds."""
    process.terminate()
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        signal_group(process.pid, signal.SIGKILL)
        process.wait()


def end_with_parent(lives: Callable[[], bool]) -> None:
    """End this process when its parent no longer `lives`, for example because it was killed."""
    threading.Thread(target=_end_with, args=(lives,), name="parent", daemon=True).start()


def _end_with(lives: Callable[[], bool]) -> None:
    while lives():
        time.sleep(_LOOK_EVERY)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE)
    os.kill(os.getpid(), signal.SIGKILL)
