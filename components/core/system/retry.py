"""Retries of failed calls after growing, random waits, for a limited time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_after_delay,
    stop_when_event_set,
    wait_exponential_jitter,
)

_log = logging.getLogger(__name__)


def retrying(
    seconds: float,
    when: Callable[[BaseException], bool],
    message: Callable[[BaseException], str] | None = None,
    *,
    first_s: float = 0.1,
    longest_s: float = 5.0,
    stopped: threading.Event | None = None,
) -> Retrying:
    """A retrying caller, `retrying(...)(function, *arguments)`, which raises the last error at the end.

    Args:
        seconds: time limit of all calls; one call is always made.
        when: whether a call that raised this error may succeed when repeated.
    """
    stopped = stopped or threading.Event()

    def log_first(state: RetryCallState) -> None:
        error = state.outcome and state.outcome.exception()
        if message is not None and error and state.attempt_number == 1:
            _log.warning("%s", message(error))

    return Retrying(
        retry=retry_if_exception(when),
        wait=wait_exponential_jitter(initial=first_s, max=longest_s, jitter=first_s),
        stop=stop_after_delay(seconds) | stop_when_event_set(stopped),
        sleep=sleep_using_event(stopped),
        before_sleep=log_first,
        reraise=True,
    )
