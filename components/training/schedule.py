"""Learning-rate schedules as a factor of the peak, per step."""

from __future__ import annotations

import math
from collections.abc import Callable

from components.errors import InputError

Schedule = Callable[[int, int], float]
"""(step, total steps) -> factor of the peak rate, after warm-up."""


def _cosine(step: int, total: int) -> float:
    return 0.5 * (1 + math.cos(math.pi * step / total))


def _constant(_step: int, _total: int) -> float:
    return 1.0


SCHEDULES: dict[str, Schedule] = {"cosine": _cosine, "constant": _constant}


def rate_factor(schedule: str, step: int, total: int, warmup: int) -> float:
    """The factor at `step` (from 0): linear warm-up over `warmup` steps, then the schedule over the rest."""
    if step < warmup:
        return (step + 1) / warmup
    return SCHEDULES[schedule](step - warmup, max(1, total - warmup))


def check_warmup(warmup: int, total: int) -> None:
    """Raise `InputError` when the run would end inside its warm-up."""
    if warmup >= total:
        raise InputError(f"warmup_steps is {warmup} but the run has {total} steps: lower it or train longer")
