"""Each client has a bucket of its own, filled at the rate."""

from __future__ import annotations

import pytest

from components.serving import rates
from components.serving.rates import Rates


def test_a_burst_then_the_rate() -> None:
    now = 0.0
    found = Rates(10, 0.5, lambda: now)
    assert [found.wait("a") for _ in range(5)] == [0] * 5
    assert found.wait("a") == pytest.approx(0.1)
    assert found.wait("b") == 0
    now = 0.11
    assert found.wait("a") == 0
    assert found.wait("a") > 0
    now = 1000.0
    assert [found.wait("a") > 0 for _ in range(6)] == [False] * 5 + [True]


def test_a_slow_rate_lets_one_pass() -> None:
    found = Rates(0.5, 1, lambda: 0.0)
    assert found.wait("a") == 0
    assert found.wait("a") == pytest.approx(2)


def test_no_limit() -> None:
    found = Rates(0, 1, lambda: 0.0)
    assert not any(found.wait("a") for _ in range(1000))


def test_clients_that_come_once_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_CLIENTS", 3)
    found = Rates(1, 1, lambda: 0.0)
    for number in range(100):
        found.wait(str(number))
    assert len(found._buckets) == 3
