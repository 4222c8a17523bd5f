"""The process supervisor: runs one command, and ends all processes of the command when the parent process dies.

The flows and the engine `vllm` start this file as a script; SIGTERM to the script ends the command:

python -P components/core/system/supervisor.py <process id of the parent> <seconds of grace> <command>...
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

import psutil

_POLL_S = 0.2


def supervise(parent: int, grace: float, command: list[str]) -> int:
    """Run `command` until it ends, the process `parent` dies, or this process gets SIGTERM, SIGINT or SIGHUP.

    Then every process that the command started ends, including those in sessions of their own (torchrun's ranks) and
    those that the command left behind: SIGTERM first, SIGKILL after `grace` seconds.
    Returns its exit code, or 128 plus the number of the signal that ended it.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    if sys.platform == "linux":
        # PR_SET_CHILD_SUBREAPER: a descendant whose parent dies becomes a child of this process and remains visible.
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    process = subprocess.Popen(command)
    while process.poll() is None and os.getppid() == parent and not stop.wait(_POLL_S):
        pass
    _end_process_tree(process, grace)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _end_process_tree(process: subprocess.Popen[bytes], grace: float) -> None:
    deadline = time.monotonic() + grace
    _signal(_descendants(process), signal.SIGTERM)
    while _descendants(process) and time.monotonic() < deadline:
        time.sleep(_POLL_S / 4)
    while members := _descendants(process):
        _signal(members, signal.SIGKILL)
        time.sleep(_POLL_S / 4)
    process.wait()


def _descendants(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The processes of the command that still run; exit codes of the others are collected."""
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


if __name__ == "__main__":
    if os.getpgrp() != os.getpid():
        # A signal to the parent's process group must not end the supervisor before its command.
        os.setpgid(0, 0)
    sys.exit(supervise(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
