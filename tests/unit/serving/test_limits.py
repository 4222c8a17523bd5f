"""Limits that contradict each other are refused before anything starts."""

from __future__ import annotations

import pytest

from components.core.errors import InputError
from components.serving.limits import Limits


@pytest.mark.parametrize("wrong", [{"texts": 0}, {"batch": 0}, {"cache": -1}, {"rate": -1}, {"texts": 9, "queue": 8}])
def test_a_limit_that_nothing_passes(wrong: dict[str, int]) -> None:
    (name, value) = list(wrong.items())[-1]
    with pytest.raises(InputError, match=f"--{name} {value} is too small"):
        Limits(**wrong)  # type: ignore[arg-type]
