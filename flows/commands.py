"""Runs commands as child processes of a flow: logs their lines, and ends the whole process group with the call."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from prefect.logging import get_run_logger

from components.core.processes import CommandError, signal_group

TAIL = 15
"""How many last lines of a failed command its error repeats."""
GRACE = 20.0
"""Seconds a stopped command has to write down what it knows; Prefect itself waits 30 s for the flow."""


def run_logged(
    command: Sequence[str],
    what: str,
    environment: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> None:
    """Run `command` and log its output line by line as it comes.

    Whatever ends this call early (cancellation, a crash of the flow) ends the whole process group of the command.

    Args:
        command: the command and its arguments.
        what: its name in messages.
        environment: variables that it has besides this process's.
        on_line: called with every line.

    Raises:
        CommandError: the command failed.
    """
    logger = get_run_logger()
    tail: deque[str] = deque(maxlen=TAIL)
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**_environment(), **(environment or {})},
        process_group=0,
    )

    def note(text: str) -> None:
        tail.append(text)
        logger.info("%s", text)
        if on_line is not None:
            on_line(text)

    try:
        _relay(process, note)
        status = process.wait()
    finally:
        stop_group(process.pid, GRACE)
    if status != 0:
        last = "\n".join(tail)
        raise CommandError(f"{what} failed with exit code {status}; its last lines:\n{last}")


def stop_group(group: int, grace: float) -> None:
    """End every process of a group: SIGTERM, then after `grace` seconds SIGKILL. An empty group is fine."""
    deadline = time.monotonic() + grace
    if signal_group(group, signal.SIGTERM):
        while signal_group(group, 0) and time.monotonic() < deadline:
            _reap(group)
            time.sleep(0.05)
        signal_group(group, signal.SIGKILL)
    _reap(group)


def _relay(process: subprocess.Popen[str], note: Callable[[str], None]) -> None:
    # Text mode turns the carriage returns of progress bars into line ends.
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            if text := line.rstrip():
                note(text)


def _reap(group: int) -> None:
    """Collect the command itself, which as a zombie would keep its group alive."""
    try:
        os.waitpid(group, os.WNOHANG)
    except ChildProcessError:
        return


def _environment() -> dict[str, str]:
    """This process's environment with its Python first on the path, because stages call `python`."""
    folder = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}", "PYTHONUNBUFFERED": "1"}
