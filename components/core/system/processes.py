"""Processes: supervised commands and their error, ends with a parent, and names by which a process is found again."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.core.tables.files import content_hash

if TYPE_CHECKING:
    import psutil

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


def new_worker() -> str:
    """The identity of this process: host, process id, start in seconds after boot, and a random part."""
    # Imported here, as in `components.core.tables.files`.
    import psutil

    return f"{_host()} {os.getpid()} {_started(psutil.Process()):.2f} {secrets.token_hex(4)}"


def is_gone(worker: str) -> bool:
    """Whether a worker was a process of this host that has ended; False for workers of other hosts."""
    import psutil

    host, *rest = worker.split(" ")
    if host != _host() or len(rest) != 3:
        return False
    pid, started, _ = rest
    try:
        process = psutil.Process(int(pid))
        if process.status() == psutil.STATUS_ZOMBIE:
            return True
        # A process of the same number that started at another time is another process. Boot times are whole seconds.
        return abs(_started(process) - float(started)) > 2.0
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


def _started(process: psutil.Process) -> float:
    import psutil

    # Both come from the same clock, so that setting the clock does not change their difference.
    started: float = process.create_time() - psutil.boot_time()
    return started


@cache
def _host() -> str:
    """Name of this host, with a hash that distinguishes hosts of the same name.

    Containers may share names and process ids: each process namespace counts as a host.
    """
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii"))
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return f"{parts[0]}-{content_hash(*parts)[:12]}"
