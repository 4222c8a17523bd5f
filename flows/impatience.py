"""Prefect's server asked once: who can do without the answer must not wait for a server that is away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings


@contextmanager
def asked_once() -> Iterator[None]:
    """Requests to Prefect's server fail at once in this block, where they are otherwise repeated for minutes."""
    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
        yield
