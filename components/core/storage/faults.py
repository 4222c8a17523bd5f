"""What an S3 store answers when something is wrong: which faults pass by themselves, and one line for each other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_exponential_jitter

from components.core.errors import InputError

T = TypeVar("T")
PATIENCE = 300.0
"""Seconds that a store may stay away during an upload: long enough for a restart."""
_MISSING = {"404", "NoSuchKey", "NoSuchBucket", "NotFound"}
_REFUSED = {"401", "403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"}
_CHANGED = {"412", "PreconditionFailed"}
_PASSING = {"BadDigest", "XAmzContentChecksumMismatch", "RequestTimeout", "SlowDown", "Throttling", "OperationAborted"}
"""A digest that differs means that the bytes were damaged on the way: they are sent again."""
_LOG = logging.getLogger(__name__)
_NETWORK = (BotoCoreError, ConnectionError, TimeoutError)
_LASTING = (NoCredentialsError, PartialCredentialsError, ParamValidationError)


class MissingError(InputError):
    """The object or bucket is not there."""


def fault_code(error: BaseException) -> str:
    """The store's own word for what is wrong; empty when it did not answer."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def can_pass(error: BaseException) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return status >= 500 or fault_code(error) in _PASSING
    return isinstance(error, _NETWORK) and not isinstance(error, _LASTING)


def patiently(call: Callable[[], T], patience: float = PATIENCE) -> T:
    """What `call` returns; it is repeated with growing waits while its faults can pass, for `patience` seconds."""
    retrying = Retrying(
        retry=retry_if_exception(can_pass),
        stop=stop_after_delay(patience),
        wait=wait_exponential_jitter(initial=0.2, max=10.0, jitter=0.5),
        before_sleep=lambda state: _tell(state, patience),
        reraise=True,
    )
    return retrying(call)


def _tell(state: RetryCallState, patience: float) -> None:
    """Say once why nothing happens."""
    if state.attempt_number == 1 and state.outcome is not None:
        _LOG.warning("the store is away, tried again for up to %.0f s: %s", patience, state.outcome.exception())


@contextmanager
def explained(url: str, verb: str = "read") -> Iterator[None]:
    """What boto3 raises, as one line that says what to do.

    Raises:
        MissingError: the object or bucket is not there.
        InputError: everything else.
    """
    try:
        yield
    except ClientError as error:
        code = fault_code(error)
        if code in _MISSING:
            raise MissingError(f"{url} is missing: put it there or correct the URL") from None
        if code in _REFUSED:
            raise InputError(f"{url} may not be {verb} ({code}): check AWS_ACCESS_KEY_ID and its rights") from None
        if code in _CHANGED:
            raise InputError(f"{url} was replaced while it was {verb}: start again") from None
        raise InputError(f"{url} cannot be {verb} ({error}): try again later") from None
    except (NoCredentialsError, PartialCredentialsError):
        raise InputError(f"{url} needs credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY") from None
    except ParamValidationError as error:
        reason = str(error).splitlines()[-1]
        raise InputError(f"{url} is no usable URL ({reason}): write s3://bucket/key") from None
    except _NETWORK as error:
        raise InputError(f"{url} is out of reach ({error}): check AWS_ENDPOINT_URL_S3 and the network") from None
