"""Processes with a log, their end, and waits for a condition."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil


def wait_until(
    true: Callable[[], object], seconds: float = 30.0, fault: Callable[[], object] = lambda: "it did not become true"
) -> None:
    """Return when `true` does; after `seconds` the test fails with what `fault` returns."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, fault()
        time.sleep(0.01)


def started(command: Sequence[str], log: Path, **options: Any) -> subprocess.Popen[bytes]:
    """A process in a session of its own, whose output goes to the end of a log."""
    with log.open("ab") as stream:
        streams = {"stdin": subprocess.DEVNULL, "stdout": stream, "stderr": stream}
        return subprocess.Popen(command, start_new_session=True, **streams, **options)


def runs(process: psutil.Process) -> bool:
    """Whether a process is alive; a zombie is not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def stop(process: subprocess.Popen[bytes], within_s: float = 25.0) -> None:
    """End a process and all its descendants; kill those that still run after `within_s` seconds."""
    if process.poll() is None:
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for member in filter(runs, family):
            member.terminate()
        for member in psutil.wait_procs(family, within_s)[1]:
            member.kill()
        process.wait()
