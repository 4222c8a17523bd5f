"""The flow behind `prefect deployment run synthesize-captions/<where>`: the captions of language models alone."""

from __future__ import annotations

from prefect import flow
from pydantic import PositiveFloat, PositiveInt

from components.core.settings import load_settings
from components.core.system.errors import InputError
from flows.pipeline import PARALLEL, bring_up_to_date
from flows.stages import HOURS


@flow(name="synthesize-captions")
def synthesize_captions(
    tasks: list[str] | None = None, parallel: PositiveInt = PARALLEL, stage_hours: PositiveFloat = HOURS
) -> None:
    """Have a language model answer prompt tasks; the stages before them are brought up to date too.

    Args:
        tasks: keys of `synthesize.tasks`, by default all.
        parallel: maximum number of stages that run at the same time.
        stage_hours: time limit of a stage.
    """
    available = list(load_settings().synthesize.tasks)
    for name in tasks or []:
        if name not in available:
            raise InputError(f"params.yaml has no block synthesize.tasks.{name}: choose from {', '.join(available)}")
    bring_up_to_date([f"synthesize@{name}" for name in tasks or available], parallel, stage_hours)
