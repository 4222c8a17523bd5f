"""The identity of a worker process (host, process id, start), by which its host can tell whether it still runs."""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

from components.core.files import content_hash

_CLOCK_STEP_S = 2.0
"""How far two readings of one process's age may differ; the system's clock gives boot time in whole seconds."""


def new_worker() -> str:
    """Host, process id, start of the process in seconds after boot, and a part that nobody else has."""
    return f"{_host()} {os.getpid()} {_started(psutil.Process()):.2f} {secrets.token_hex(4)}"


def is_gone(worker: str) -> bool:
    """Whether a worker was a process of this host and is no more; False for one of another host."""
    host, *rest = worker.split(" ")
    if host != _host() or len(rest) != 3:
        return False
    pid, started, _ = rest
    try:
        process = psutil.Process(int(pid))
        if process.status() == psutil.STATUS_ZOMBIE:
            return True
        # A process of the same number that started at another time is another process.
        return abs(_started(process) - float(started)) > _CLOCK_STEP_S
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


def _started(process: psutil.Process) -> float:
    # Both are read from the same clock: setting it changes neither's distance to the other.
    started: float = process.create_time() - psutil.boot_time()
    return started


@cache
def _host() -> str:
    """Name of this host with what tells it from another of that name.

    Containers may share their name and their numbers of processes: each namespace of processes is a host.
    """
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii"))
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return f"{parts[0]}-{content_hash(*parts)[:12]}"
