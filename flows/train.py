"""The training flows, `prefect deployment run train-<method>/<where>` and `compare-methods/<where>`.

They train and score encoders, compare them, and promote the best one.
"""

from __future__ import annotations

from prefect import flow
from prefect.logging import get_run_logger
from pydantic import PositiveFloat, PositiveInt

from components.core.settings import Settings, load_settings
from components.core.system.errors import InputError
from components.evaluation.scoring.results import DEFAULT
from components.registry.decision import BASE
from flows.artifacts import record_state, show_results, show_scores
from flows.pipeline import PARALLEL, bring_up_to_date
from flows.promote import decide
from flows.stages import HOURS


@flow
def train(
    method: str = "paraclip",
    parallel: PositiveInt = PARALLEL,
    stage_hours: PositiveFloat = HOURS,
    approval: bool = False,
) -> None:
    """Run the stages that a method needs, one task each, then put the best encoder through the gate.

    Args:
        method: an entry of `methods` in params.yaml that `compare_encoders` lists.
        parallel: maximum number of stages that run at the same time.
        stage_hours: time limit of a stage.
        approval: pause for a person's approval before a promotion.
    """
    train_and_promote([method], parallel, stage_hours, approval)


# Any other entry of `methods` runs as one of these flows with `-p method=<entry>`, once `compare_encoders` lists it.
train_paraclip = train.with_options(name="train-paraclip")
train_pc_clip = train.with_options(name="train-pc-clip")
train_semclip = train.with_options(name="train-semclip")
train_lm_text_tower = train.with_options(name="train-lm-text-tower")
train_joint = train.with_options(name="train-joint")


@flow(name="compare-methods")
def compare_methods(
    methods: list[str] | None = None,
    parallel: PositiveInt = PARALLEL,
    stage_hours: PositiveFloat = HOURS,
    approval: bool = False,
) -> None:
    """Train and score methods in parallel, compare them, and put the best one through the gate.

    A failed method does not stop the others. The next run of the flow resumes where this one stopped.

    Args:
        methods: entries of `methods` in params.yaml; by default all that `compare_encoders` lists.
        parallel: maximum number of stages that run at the same time.
        stage_hours: time limit of a stage.
        approval: pause for a person's approval before a promotion.
    """
    train_and_promote(methods, parallel, stage_hours, approval)


def train_and_promote(methods: list[str] | None, parallel: int, stage_hours: float, approval: bool) -> None:
    """In a flow: train and score `methods`, compare them with all other encoders, promote the best."""
    settings = load_settings()
    chosen = chosen_methods(settings, methods)
    missing = unscored(settings, chosen)
    targets = [f"evaluate@{name}" for name in (BASE, *chosen)]
    try:
        bring_up_to_date(targets, parallel, stage_hours, last=None if missing else "compare")
    except Exception:
        record_state(chosen)
        raise
    record_state(chosen)
    if missing:
        text = "not compared and not promoted: %s of params.yaml's encoders have no results yet: run compare-methods"
        get_run_logger().warning(text, ", ".join(missing))
        show_scores([BASE, *chosen])
        return
    show_results()
    decide(approval)


def chosen_methods(settings: Settings, methods: list[str] | None) -> list[str]:
    """The entries of `methods` that a run trains."""
    scored = [name for name in settings.compare_encoders if name != BASE]
    for name in methods or []:
        if name not in settings.methods:
            raise InputError(f"params.yaml has no block methods.{name}: choose from {', '.join(settings.methods)}")
        if name not in scored:
            raise InputError(
                f"params.yaml: compare_encoders does not list {name}, so no stage would score it: add it there, "
                "or run `cliptune profile apply methods`"
            )
    if not methods and not scored:
        raise InputError("params.yaml: compare_encoders lists no encoder but base: add one of the methods")
    return list(dict.fromkeys(methods)) if methods else scored


def unscored(settings: Settings, chosen: list[str]) -> list[str]:
    """Encoders of params.yaml without results that this run does not score either."""
    others = [name for name in settings.compare_encoders if name not in (BASE, *chosen)]
    return [name for name in others if not (DEFAULT.metrics / f"{name}.json").is_file()]
