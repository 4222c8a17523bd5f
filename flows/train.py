"""The flows behind `prefect deployment run train-<method>/<where>`: train one method, score it, compare, promote."""

from __future__ import annotations

from prefect import flow
from pydantic import PositiveFloat, PositiveInt

from flows.pipeline import PARALLEL
from flows.stages import HOURS
from flows.train_and_promote import train_and_promote


@flow
def train(
    method: str = "paraclip",
    parallel: PositiveInt = PARALLEL,
    stage_hours: PositiveFloat = HOURS,
    approval: bool = False,
) -> None:
    """Run the stages that a method needs, one task each, then put the best encoder through the gate.

    Args:
        method: an entry of `methods` in params.yaml that `encoders` lists.
        parallel: how many stages work at once.
        stage_hours: how long a stage may take.
        approval: pause for a person's consent before a promotion.
    """
    train_and_promote([method], parallel, stage_hours, approval)


# Any other entry of `methods` runs as one of these flows with `-p method=<entry>`, once `encoders` lists it.
train_paraclip = train.with_options(name="train-paraclip")
train_pc_clip = train.with_options(name="train-pc-clip")
train_semclip = train.with_options(name="train-semclip")
train_adapted_lm = train.with_options(name="train-adapted-lm")
train_joint = train.with_options(name="train-joint")
