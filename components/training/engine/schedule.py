"""Learning-rate schedules as a factor of the peak, per step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from components.core.errors import InputError
from components.methods.contract.optimisation import Optimisation


@dataclass(frozen=True)
class Progress:
    """Where a run is after its warm-up.

    Attributes:
        step: steps since the warm-up.
        total: steps from the warm-up to the end.
        epoch: whole epochs done, warm-up included.
        gamma: factor per epoch of the exponential schedule.
    """

    step: int
    total: int
    epoch: int
    gamma: float


def _cosine(at: Progress) -> float:
    return 0.5 * (1 + math.cos(math.pi * at.step / at.total))


def _constant(_at: Progress) -> float:
    return 1.0


def _exponential(at: Progress) -> float:
    return at.gamma**at.epoch


SCHEDULES: dict[str, Callable[[Progress], float]] = {
    "cosine": _cosine,
    "constant": _constant,
    "exponential": _exponential,
}


def rate_factor(plan: Optimisation, step: int, per_epoch: int) -> float:
    """The factor at `step` (from 0): linear warm-up over `warmup_steps`, then the schedule over the rest."""
    if step < plan.warmup_steps:
        return (step + 1) / plan.warmup_steps
    total = max(1, per_epoch * plan.epochs - plan.warmup_steps)
    return SCHEDULES[plan.schedule](Progress(step - plan.warmup_steps, total, step // per_epoch, plan.gamma))


def check_warmup(warmup: int, total: int) -> None:
    """Raise `InputError` when the run would end inside its warm-up."""
    if warmup >= total:
        raise InputError(f"warmup_steps is {warmup} but the run has {total} steps: lower it or train longer")
