"""SIGTERM as an exception, so that a run that is told to stop ends as KILLED."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Killed(BaseException):
    """The process was told to stop; not an `Exception`, so that nothing on the way swallows it."""


@contextmanager
def stopped_by_signals() -> Iterator[Callable[[], None]]:
    """Raise `Killed` in the main thread on SIGTERM; the old handler is put back afterwards.

    Yields a function after which SIGTERM is ignored, so that no signal interrupts the writing of the run's end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    def ignore() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def stop(_number: int, _frame: FrameType | None) -> None:
        ignore()
        raise Killed

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield ignore
    finally:
        signal.signal(signal.SIGTERM, previous)
