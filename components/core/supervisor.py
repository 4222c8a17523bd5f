"""The process supervisor: runs one command as its child, and ends all of the command's processes when the process that
started it dies. Flows' tasks and the engine `vllm` start this file as a script, in a process group of its own:

python -P components/core/supervisor.py <pid of the parent> <seconds of grace> <folder> <token> <command>...
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

LAST = "last"
"""The file beside the token that holds the command's last line, also when the token is removed."""
_POLL = 0.2
_SUBREAPER = 36
"""`PR_SET_CHILD_SUBREAPER` of Linux's prctl."""

_stop_requested = threading.Event()
"""Set when this process is told to end."""


def supervise(parent: int, grace: float, folder: Path, token: Path, command: list[str]) -> int:
    """Run `command` in `folder` for as long as the process `parent` lives and the file `token` is there.

    Its lines are passed on as they come; at the end the file `last` beside the token holds the last one. When the
    parent or the token goes, or this process is told to end, every process that the command started ends, those in
    sessions of their own (torchrun's ranks) too: SIGTERM, and SIGKILL when the grace is over. Nothing that the command
    left behind survives its own end either.

    Args:
        parent: the process that started this one.
        grace: seconds that a stopped command has to write down what it knows.
        folder: where the command runs.
        token: a file that whoever wants the command stopped removes.
        command: the command.

    Returns:
        Its exit code, or 128 and the signal's number where a signal ended it.
    """
    _adopt_orphans()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: _stop_requested.set())
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    last = [""]
    relay = threading.Thread(target=_relay, args=(process, last), daemon=True)
    relay.start()
    while process.poll() is None and os.getppid() == parent and token.exists() and not _stop_requested.wait(_POLL):
        pass
    end_process_tree(process, grace)
    # Nobody has the pipe open any more, unless a process is stuck in the system.
    relay.join(timeout=5)
    with contextlib.suppress(OSError):
        # The folder goes with whoever made it.
        token.with_name(LAST).write_text(last[0], "utf-8")
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def end_process_tree(process: subprocess.Popen[str], grace: float) -> None:
    """End a command and all its descendants, and wait for them."""
    deadline = time.monotonic() + grace
    _signal(_descendants(process), signal.SIGTERM)
    while _descendants(process) and time.monotonic() < deadline:
        time.sleep(_POLL / 4)
    while members := _descendants(process):
        _signal(members, signal.SIGKILL)
        time.sleep(_POLL / 4)
    process.wait()


def _descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes of the command that still run; exit codes of those that ended are collected."""
    process.poll()
    alive = []
    for member in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if member.status() != psutil.STATUS_ZOMBIE:
                alive.append(member)
            elif member.pid != process.pid:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(member.pid, os.WNOHANG)
    return alive


def _signal(members: list[psutil.Process], number: int) -> None:
    for member in members:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            member.send_signal(number)


def _adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that none gets out of sight."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _relay(process: subprocess.Popen[str], last: list[str]) -> None:
    # Text mode turns the carriage returns of progress bars into line ends.
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        for line in process.stdout:
            if text := line.rstrip():
                last[0] = text
                print(text, flush=True)


if __name__ == "__main__":
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    sys.exit(supervise(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]), sys.argv[5:]))
