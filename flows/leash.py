"""A command that ends with whoever started it, run as a script in a process group of its own.

python flows/leash.py <pid of the parent> <seconds of grace> <folder> <token> <command>...
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

LAST = "last"
"""The file beside the token that holds a command's last line: whoever stops it must not remove what it said."""
_POLL = 0.2


def hold(parent: int, grace: float, folder: Path, token: Path, command: list[str]) -> int:
    """Run `command` in `folder` for as long as the process `parent` lives and the file `token` is there.

    Its lines are passed on as they come; at the end the file `last` beside the token holds the last one. When the
    parent or the token goes, the whole process group ends: SIGTERM, and SIGKILL after the command has ended or the
    grace is over.

    Args:
        parent: the process that started this one.
        grace: seconds that a stopped command has to write down what it knows.
        folder: where the command runs.
        token: a file that whoever wants the command stopped removes.
        command: the command.

    Returns:
        Its exit code, or 128 and the signal's number where a signal ended it.
    """
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    last = [""]
    relay = threading.Thread(target=_relay, args=(process, last), daemon=True)
    relay.start()
    while process.poll() is None:
        if os.getppid() != parent or not token.exists():
            _end_group(process, grace)
        time.sleep(_POLL)
    # A child of the command that outlives it may keep the pipe open.
    relay.join(timeout=5)
    with contextlib.suppress(OSError):
        # The folder goes with whoever made it.
        token.with_name(LAST).write_text(last[0], "utf-8")
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _relay(process: subprocess.Popen[str], last: list[str]) -> None:
    # Text mode turns the carriage returns of progress bars into line ends.
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        for line in process.stdout:
            if text := line.rstrip():
                last[0] = text
                print(text, flush=True)


def _end_group(process: subprocess.Popen[str], grace: float) -> None:
    """End the command, whatever it started, and this process with them."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(os.getpgrp(), signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    sys.exit(hold(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]), sys.argv[5:]))
