"""The flow behind `prefect deployment run compare-methods/<where>`: every method at once, one table, one champion."""

from __future__ import annotations

from prefect import flow
from pydantic import PositiveFloat, PositiveInt

from flows.pipeline import PARALLEL
from flows.stages import HOURS
from flows.train_and_promote import train_and_promote


@flow(name="compare-methods")
def compare_methods(
    methods: list[str] | None = None,
    parallel: PositiveInt = PARALLEL,
    stage_hours: PositiveFloat = HOURS,
    approval: bool = False,
) -> None:
    """Train and score methods side by side, compare them, and put the best one through the gate.

    A method that fails stops no other; running the flow again goes on where it stopped.

    Args:
        methods: entries of `methods` in params.yaml; all that `encoders` lists when not given.
        parallel: how many stages work at once.
        stage_hours: how long a stage may take.
        approval: pause for a person's consent before a promotion.
    """
    train_and_promote(methods, parallel, stage_hours, approval)
