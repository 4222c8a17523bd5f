"""Errors of MLflow: which are transient, how long calls are retried, and messages without passwords."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from components.core.system.errors import InputError, shown_address
from components.core.system.retry import retrying

WAIT = "CLIPTUNE_TRACKING_WAIT_S"
"""Environment variable: how many seconds a stage waits for an unavailable server."""
_WAIT_S = 600.0
SOON_S = 3.0
"""How many seconds an interactive command waits for an unavailable server."""
_RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
_PACKAGES = ("mlflow", "requests", "sqlalchemy", "botocore", "boto3")
"""Packages whose errors mean that MLflow, its database or its artifact store failed."""
_LONGEST = 500


def reason_of(error: BaseException) -> str:
    """The message of an error in one line, without users and passwords."""
    message = " ".join(str(getattr(error, "orig", None) or error).split())
    # Masked before it is cut, or a cut address would keep its password.
    return shown_address(message)[:_LONGEST] or type(error).__name__


@contextmanager
def explained() -> Iterator[None]:
    """Limit MLflow's retries to seconds, and turn its errors in the block into an `InputError` of one line."""
    try:
        with fail_fast(SOON_S):
            yield
    except Exception as error:
        if is_full(error) or type(error).__module__.partition(".")[0] not in _PACKAGES:
            raise
        raise InputError(f"MLflow: {reason_of(error)}: correct MLFLOW_TRACKING_URI, or run `cliptune doctor`") from None


def is_transient(error: BaseException) -> bool:
    """Whether a call to MLflow may succeed if it is repeated: no response, too busy, or an internal server error."""
    from mlflow.exceptions import MlflowException

    # SQLAlchemy's store makes an internal error of a server of every error in this process.
    if not isinstance(error, MlflowException) or is_full(error) or is_out_of_memory(error):
        return False
    status = error.get_http_status_code()
    return bool(status >= 500 or status == 429)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that caused it, is a `MemoryError` of this process."""
    while error is not None and not isinstance(error, MemoryError):
        error = error.__cause__ or error.__context__
    return error is not None


def is_full(error: BaseException) -> bool:
    """Whether the disk of a database file is full, so that retries are useless."""
    return "database or disk is full" in str(error)


def wait_s() -> float:
    """How many seconds to wait for an unavailable server."""
    return float(os.environ.get(WAIT) or _WAIT_S)


def call_with_retries(call: Callable[[], object], within_s: float) -> None:
    """Call MLflow at least once, and again for `within_s` seconds while its errors are transient.

    Raises:
        MlflowException: the server refused, or was unavailable for too long.
    """
    retrying(within_s, is_transient, first_s=1, longest_s=15)(call)


@contextmanager
def fail_fast(within_s: float | None = None) -> Iterator[None]:
    """Let MLflow's client retry once instead of for minutes, and `wait_s` be `within_s`; the user's settings win."""
    given = {_RETRIES: "1"} | ({} if within_s is None else {WAIT: str(within_s)})
    with environment({name: value for name, value in given.items() if name not in os.environ}):
        yield


@contextmanager
def environment(given: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a block."""
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
