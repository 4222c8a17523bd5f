"""SIGINT and SIGTERM wait for the end of a step, so that no step is lost that was done."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAME_S = 1.0
"""Within which a second signal is the first one come twice: from the terminal and from the process above, say."""


@dataclass
class Stop:
    """Which signal came, 0 for none, and how to end by it."""

    number: int = 0
    put_back: Callable[[], None] = lambda: None

    def end(self, number: int) -> None:
        """Let the signal do what it would have done at once; never returns."""
        self.put_back()
        signal.raise_signal(number)
        raise KeyboardInterrupt


@contextmanager
def told_to_stop() -> Iterator[Stop]:
    """Note SIGINT and SIGTERM for the length of the block; one that comes again later ends the process at once."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    # Who started this process to ignore a signal, as nohup does, is not overruled.
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    came = 0.0

    def put_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, _frame: FrameType | None) -> None:
        nonlocal came
        if stop.number and time.monotonic() > came + _SAME_S:
            stop.end(number)
        if not stop.number:
            stop.number, came = number, time.monotonic()
            # Not print: what it writes to may be in the midst of a line.
            os.write(2, b"\nsaves a checkpoint after this step and stops; once more to stop at once\n")

    stop.put_back = put_back
    for number in before:
        signal.signal(number, note)
    try:
        yield stop
    finally:
        put_back()
