"""Calls that failed are repeated while that may help, for a limited time, with one line of the log."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import pytest

from components.core.system.retry import retrying


def _failing(times: float, error: type[Exception] = OSError) -> tuple[list[int], Callable[[str], str]]:
    calls: list[int] = []

    def call(answer: str) -> str:
        calls.append(1)
        if len(calls) <= times:
            raise error(f"failure {len(calls)}")
        return answer

    return calls, call


def _is_os_error(error: BaseException) -> bool:
    return isinstance(error, OSError)


def test_a_call_is_repeated_until_it_succeeds_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    calls, call = _failing(3)
    repeat = retrying(60, _is_os_error, lambda error: f"away ({error})", first_s=0.001, longest_s=0.01)
    assert repeat(call, "answer") == "answer"
    assert len(calls) == 4
    assert caplog.messages == ["away (failure 1)"]
    calls, call = _failing(3, ValueError)
    with pytest.raises(ValueError, match="failure 1"):
        retrying(60, _is_os_error)(call, "answer")
    assert len(calls) == 1


def test_a_call_is_made_once_and_given_up_when_the_time_is_over_or_at_the_event() -> None:
    calls, call = _failing(math.inf)
    with pytest.raises(OSError, match=r"failure 1$"):
        retrying(0, _is_os_error)(call, "answer")
    assert len(calls) == 1
    with pytest.raises(OSError, match="failure"):
        retrying(0.1, _is_os_error, first_s=0.01)(call, "answer")
    assert len(calls) > 2
    stopped = threading.Event()
    threading.Timer(0.1, stopped.set).start()
    with pytest.raises(OSError, match="failure"):
        retrying(math.inf, _is_os_error, first_s=3600, longest_s=3600, stopped=stopped)(call, "answer")
