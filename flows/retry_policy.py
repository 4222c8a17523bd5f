"""The retry policy for requests to Prefect's server whose answer is not needed: one try, no waiting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings


@contextmanager
def fail_fast() -> Iterator[None]:
    """Requests to Prefect's server fail at once in this block, where they are otherwise repeated for minutes."""
    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
        yield
