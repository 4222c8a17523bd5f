"""The identity of a worker process (host, process id, start), with which its host can check whether it still runs."""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

from components.core.tables.files import content_hash


def new_worker() -> str:
    """Host, process id, start of the process in seconds after boot, and a random part."""
    return f"{_host()} {os.getpid()} {_started(psutil.Process()):.2f} {secrets.token_hex(4)}"


def is_gone(worker: str) -> bool:
    """Whether a worker was a process of this host that has ended; False for workers of other hosts."""
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
