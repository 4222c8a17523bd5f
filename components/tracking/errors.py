"""MLflow's errors in words: one line within seconds, and no user or password of an address in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from components.core.errors import InputError
from components.tracking.retry_policy import SOON_S, fail_fast, is_full

_PACKAGES = ("mlflow", "requests", "sqlalchemy", "botocore", "boto3")
"""Packages whose errors mean that MLflow, its database or its artifacts' store failed."""
_LONGEST = 500


def shown_address(text: str) -> str:
    """An address, or a text with addresses in it, without users and passwords, for records and messages."""
    hidden = re.sub(r"(?<=://)[^/\s]*@", "***@", text)
    return re.sub(r"(?i)([?&][\w-]*(?:password|secret|token|key)[\w-]*=)[^&\s]*", r"\1***", hidden)


def reason_of(error: BaseException) -> str:
    """The error's own words in one line, without users and passwords."""
    told = " ".join(str(getattr(error, "orig", None) or error).split())
    # Masked before it is cut, or a cut address would keep its password.
    return shown_address(told)[:_LONGEST] or type(error).__name__


@contextmanager
def explained() -> Iterator[None]:
    """Give MLflow seconds to answer, and make its errors of this block an `InputError` of one line."""
    try:
        with fail_fast(SOON_S):
            yield
    except Exception as error:
        if is_full(error) or type(error).__module__.partition(".")[0] not in _PACKAGES:
            raise
        raise InputError(f"MLflow: {reason_of(error)}: correct MLFLOW_TRACKING_URI, or run `cliptune doctor`") from None
