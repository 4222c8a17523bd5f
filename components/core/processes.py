"""How a failed command is reported, and signals to a whole process group; used by flows and the stack."""

from __future__ import annotations

import os


class CommandError(Exception):
    """A command ended with an error; the message carries its last lines."""


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; False when no process is left in it. Signal 0 only asks."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
