"""An application around a stub."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from starlette.applications import Starlette

from components.serving.server.address import ServingLimits
from components.serving.server.app import make_app
from components.serving.server.batches import Batcher, Metrics
from tests.support.serving import Stub, stub_served


@pytest.fixture
def stub() -> Stub:
    """The encoder of the served version."""
    return Stub()


@pytest.fixture
def app_of(stub: Stub) -> Callable[..., Starlette]:
    """Creates an application with limits and tokens."""

    def make(limits: ServingLimits | None = None, tokens: Sequence[str] = (), problem: str = "") -> Starlette:
        limits, metrics = limits or ServingLimits(), Metrics()
        served = stub_served(stub)
        metrics.serves(served)
        return make_app(Batcher(served, limits, metrics), limits, metrics, tokens, lambda: problem)

    return make
