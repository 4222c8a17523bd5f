"""Which errors of MLflow are transient, and how long calls to it are repeated."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from components.core.retry import retrying

WAIT = "CLIPTUNE_TRACKING_WAIT_S"
"""Environment variable: how long a stage waits for a server that is away, in seconds."""
_WAIT_S = 600.0
SOON_S = 3.0
"""How long a command that a person waits for tries to reach a server that is away."""
_RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"


def is_transient(error: BaseException) -> bool:
    """Whether an error of MLflow may be gone at the next try: no answer, too busy, an internal error of the server."""
    from mlflow.exceptions import MlflowException

    if not isinstance(error, MlflowException) or is_full(error):
        return False
    status = error.get_http_status_code()
    return bool(status >= 500 or status == 429)


def is_full(error: BaseException) -> bool:
    """Whether a database that is a file finds no room on its disk, where waiting is no use."""
    return "database or disk is full" in str(error)


def wait_s() -> float:
    """Seconds to wait for a server that is away: the value of `WAIT`, or its default."""
    return float(os.environ.get(WAIT) or _WAIT_S)


def call_with_retries(call: Callable[[], object], within_s: float) -> None:
    """Call MLflow at least once, and again while its errors are transient, for `within_s` seconds.

    Raises:
        MlflowException: the server refused, or stayed away too long.
    """
    retrying(within_s, is_transient, first_s=1, longest_s=15)(call)


@contextmanager
def fail_fast(within_s: float | None = None) -> Iterator[None]:
    """Have MLflow's client retry once instead of for minutes, unless the user has set its retries.

    Args:
        within_s: also the value of `wait_s` in the block, unless the user has set it.
    """
    given = {_RETRIES: "1"} | ({} if within_s is None else {WAIT: str(within_s)})
    with environment({name: value for name, value in given.items() if name not in os.environ}):
        yield


@contextmanager
def environment(given: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for the length of a block."""
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
