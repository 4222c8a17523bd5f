"""Warm-up, then the schedule; a run that never leaves its warm-up is refused."""

from __future__ import annotations

from itertools import pairwise

import pytest

from components.errors import InputError
from components.training.schedule import check_warmup, rate_factor


def test_warm_up_is_linear_and_cosine_ends_near_zero() -> None:
    factors = [rate_factor("cosine", step, 110, 10) for step in range(110)]
    assert factors[:3] == pytest.approx([0.1, 0.2, 0.3])
    assert factors[9] == factors[10] == 1.0
    assert factors[60] == pytest.approx(0.5)
    assert factors[-1] < 0.001
    assert all(later <= earlier for earlier, later in pairwise(factors[10:]))


def test_constant_stays() -> None:
    assert {rate_factor("constant", step, 20, 0) for step in range(20)} == {1.0}


def test_warm_up_longer_than_the_run_is_refused() -> None:
    check_warmup(9, 10)
    with pytest.raises(InputError, match="warmup_steps is 10 but the run has 10 steps"):
        check_warmup(10, 10)
