"""Validation during training: loss and retrieval on held-out rows, into the tracked run."""

from __future__ import annotations

from collections.abc import Callable

from components.core.errors import InputError
from components.core.settings import Train
from components.encoders.adapter.texts.tokens import Tokenizer
from components.training.data import Data
from components.training.engine.gradients import Objective, evaluate

DIRECTIONS = {"validation/loss": False, "validation/r_at_5": True, "validation/ao_at_10": True}
"""Early metric -> whether larger is better."""


def check_export(train: Train, data: Data) -> None:
    """Raise `InputError` when `train.export` names a metric that this run will not have."""
    if train.export == "last":
        return
    if train.validate_every is None:
        raise InputError(
            f"params.yaml: train.export '{train.export}' needs train.validate_every: give it, or use 'last'"
        )
    known = set()
    if data.held_rows is not None:
        known.add("validation/loss")
    if data.held_out is not None:
        known.add("validation/r_at_5")
        if data.held_out.paraphrases is not None:
            known.add("validation/ao_at_10")
    if train.export not in known:
        raise InputError(
            f"params.yaml: train.export '{train.export}' has too few held-out rows: raise train.held_out, or use 'last'"
        )


def watch(
    data: Data, objective: Objective, tokenizer: Tokenizer, log: Callable[[dict[str, float], int], None]
) -> Callable[[int], dict[str, float]] | None:
    """A function of the step that scores the weights as they are and logs the result; None with nothing to score."""
    if data.held_out is None and data.held_rows is None:
        return None
    held_out, held_rows = data.held_out, data.held_rows

    def validate(step: int) -> dict[str, float]:
        found: dict[str, float] = {}
        if held_rows is not None:
            # Always the epoch 0 of these rows, so that the values of a run can be compared.
            losses = evaluate(objective, next(held_rows.epoch(0)))
            found |= {f"validation/loss/{name}": float(value) for name, value in losses.items()}
            found["validation/loss"] = sum(found.values())
        if held_out is not None:
            found |= held_out.score(objective.model, tokenizer, objective.device)
        log(found, step)
        return found

    return validate
