"""The flow behind `prefect deployment run train-<method>/<where>`: train one method, score it, promote."""

from __future__ import annotations

import sys

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.commands import run_logged
from flows.reporting import show_decision, show_results
from flows.stages import needed_stages, run_stage

PROMOTE = (sys.executable, "-m", "components.cli", "promote")


@flow
def train(method: str = "paraclip") -> None:
    """Run the stages that `method` needs, one task each, then put the best encoder through the gate."""
    for stage in needed_stages([f"evaluate@{method}", "evaluate@base"]):
        run_stage.with_options(name=stage)(stage)
    # `compare` reads whatever is scored, so its own needs would pull in every other method.
    run_stage.with_options(name="compare")("compare")
    show_results()
    promote()
    show_decision()


@task(cache_policy=NO_CACHE)
def promote() -> None:
    """Judge the best candidate; a refusal is a result, not a failure."""
    run_logged(PROMOTE, "promotion")


# Any other entry of `methods` runs as this flow with `-p method=<entry>`, once `encoders` lists it.
train_paraclip = train.with_options(name="train-paraclip")
