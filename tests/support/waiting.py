"""Waits for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(
    true: Callable[[], object], seconds: float = 30.0, fault: Callable[[], object] = lambda: "it did not become true"
) -> None:
    """Return when `true` does; after `seconds` the test fails with what `fault` returns."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, fault()
        time.sleep(0.01)
