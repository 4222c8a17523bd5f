"""Warm-up, then the schedule; a run that never leaves its warm-up is refused."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from components.core.errors import InputError
from components.methods.contract.optimisation import Optimisation
from components.training.engine.stepper import check_warmup, rate_factor


def _factors(per_epoch: int, epochs: int, **plan: Any) -> list[float]:
    optimisation = Optimisation(lr=1.0, batch_size=1, epochs=epochs, **plan)
    return [rate_factor(optimisation, step, per_epoch) for step in range(per_epoch * epochs)]


def test_warm_up_is_linear_and_cosine_ends_near_zero() -> None:
    factors = _factors(11, 10, warmup_steps=10)
    assert factors[:3] == pytest.approx([0.1, 0.2, 0.3])
    assert factors[9] == factors[10] == 1.0
    assert factors[60] == pytest.approx(0.5)
    assert 0 < factors[-1] < 0.001
    assert all(later <= earlier for earlier, later in pairwise(factors[10:]))


def test_cosine_without_warm_up_starts_at_the_peak() -> None:
    assert _factors(2, 2) == pytest.approx([1.0, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5])


def test_constant_stays() -> None:
    assert set(_factors(5, 4, schedule="constant")) == {1.0}
    assert _factors(4, 1, schedule="constant", warmup_steps=2) == [0.5, 1.0, 1.0, 1.0]


def test_exponential_falls_once_per_epoch() -> None:
    factors = _factors(3, 4, schedule="exponential", gamma=0.9)
    assert factors == pytest.approx([0.9**epoch for epoch in range(4) for _ in range(3)])


def test_exponential_counts_the_epochs_of_its_warm_up() -> None:
    assert _factors(2, 3, schedule="exponential", gamma=0.5, warmup_steps=3) == pytest.approx(
        [1 / 3, 2 / 3, 1, 0.5, 0.25, 0.25]
    )


def test_warm_up_as_long_as_the_run_is_refused() -> None:
    check_warmup(9, 10)
    with pytest.raises(InputError, match="warmup_steps is 10 but the run has 10 steps"):
        check_warmup(10, 10)
