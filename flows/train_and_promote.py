"""The work of every training flow: train and score encoders, compare them, promote the best one."""

from __future__ import annotations

from prefect.logging import get_run_logger

from components.core.errors import InputError
from components.core.settings import Settings, load_settings
from components.registry.folders import BASE, DEFAULT
from flows.heartbeat import heartbeat
from flows.pipeline import bring_up_to_date
from flows.promote import decide
from flows.recording import record_state
from flows.reporting import show_results, show_scores


def train_and_promote(methods: list[str] | None, parallel: int, stage_hours: float, approval: bool) -> None:
    """In a flow: train and score entries of `methods`, compare them with all other encoders, promote the best.

    Args:
        methods: the entries, all of `encoders` when not given.
        parallel: how many stages work at once.
        stage_hours: how long a stage may take.
        approval: whether a person must agree to a promotion.

    Raises:
        CommandError: a stage failed; others went on, and running the flow again goes on from there.
        InputError: a method is not known, or not scored.
    """
    settings = load_settings()
    chosen = chosen_methods(settings, methods)
    missing = unscored(settings, chosen)
    with heartbeat():
        targets = [f"evaluate@{name}" for name in (BASE, *chosen)]
        try:
            bring_up_to_date(targets, parallel, stage_hours, last=None if missing else "compare")
        except Exception:
            record_state(chosen)
            raise
        record_state(chosen)
        if missing:
            text = (
                "not compared and not promoted: %s of params.yaml's encoders have no results yet: run compare-methods"
            )
            get_run_logger().warning(text, ", ".join(missing))
            show_scores([BASE, *chosen])
            return
        show_results()
        decide(approval)


def chosen_methods(settings: Settings, methods: list[str] | None) -> list[str]:
    """The entries of `methods` that a run is about.

    Raises:
        InputError: one is unknown, or `encoders` does not list it, so that nothing would score it.
    """
    scored = [name for name in settings.encoders if name != BASE]
    for name in methods or []:
        if name not in settings.methods:
            raise InputError(f"params.yaml has no block methods.{name}: choose from {', '.join(settings.methods)}")
        if name not in scored:
            raise InputError(
                f"params.yaml: encoders does not list {name}, so nothing would score it: add it there, "
                "or run `cliptune profile use methods`"
            )
    if not methods and not scored:
        raise InputError("params.yaml: encoders lists no encoder but base: add one of the methods")
    return list(dict.fromkeys(methods)) if methods else scored


def unscored(settings: Settings, chosen: list[str]) -> list[str]:
    """Encoders of params.yaml that this run does not score and no earlier one did."""
    others = [name for name in settings.encoders if name not in (BASE, *chosen)]
    return [name for name in others if not (DEFAULT.metrics / f"{name}.json").is_file()]
