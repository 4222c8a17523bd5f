"""A training run: its parts, and its state, which checkpoints save and restore."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from components.core.compute.checkpoint import Checkpoints, Facts, optimiser_tensors, restore_optimiser
from components.core.compute.devices import pick_autocast
from components.core.compute.distributed import World
from components.core.system.errors import InputError
from components.encoders.adapter.images import CLIP, Preparation
from components.training.engine.gradients import Objective, Teacher
from components.training.engine.meter import Step
from components.training.methods.contract.losses import Features

if TYPE_CHECKING:
    from components.core.settings import Train
    from components.training.methods.contract.method import Optimisation, Perturb
    from components.training.rows.batches import BatchSource


@dataclass(frozen=True)
class LoopOptions:
    """Options of the loop; `micro_batch` and `autocast` as in `Objective` and `Towers`."""

    device: str = "cpu"
    autocast: torch.dtype | None = None
    micro_batch: int | None = None
    compiled: bool = False
    world: World = field(default_factory=World)
    checkpoint_every: int = 50
    log_every: int = 10
    validate_every: int | None = None

    @staticmethod
    def of(train: Train, device: str, world: World | None = None) -> LoopOptions:
        """The options of the block `train` of params.yaml."""
        return LoopOptions(
            device=device,
            autocast=pick_autocast(train.precision, device),
            micro_batch=train.micro_batch,
            compiled=train.compile,
            world=world or World(),
            checkpoint_every=train.checkpoint_every,
            log_every=train.log_every,
            validate_every=train.validate_every,
        )


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
        model: an encoder's model; has `logit_scale`.
        trained: its trained parameters by name, and those of `extra`.
        report: called by the leading rank every `log_every` steps and after the last one.
        validate: metrics on held-out rows of an objective at a step; called by the leading rank every `validate_every`
            steps and after the last.
        select: metric and whether larger is better; the best weights by it are saved separately.
        preparation: of pixels that are not normalised.
        exported: a context in which the weights are those that would be exported.
        teacher: the base encoder, if losses read its features.
        rates: prefixes of parameters' names -> the factor of the learning rate for these parameters.
    """

    title: str
    model: nn.Module
    trained: Mapping[str, nn.Parameter]
    losses: Callable[[Features], dict[str, Tensor]]
    source: BatchSource
    optimisation: Optimisation
    extra: nn.Module = field(default_factory=nn.Module)
    perturb: Perturb | None = None
    options: LoopOptions = field(default_factory=LoopOptions)
    checkpoints: Checkpoints | None = None
    report: Callable[[Step], None] | None = None
    validate: Callable[[Objective, int], dict[str, float]] | None = None
    select: tuple[str, bool] | None = None
    preparation: Preparation = CLIP
    exported: Callable[[], AbstractContextManager[None]] = nullcontext
    teacher: Teacher | None = None
    rates: Mapping[str, float] = field(default_factory=dict)


@torch.no_grad()
def copy_into(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Overwrite `tensors` with the `values` of the same names."""
    for name, tensor in tensors.items():
        tensor.copy_(values[name])


class State:
    """Step, position in the data, everything else that the next step depends on, and the early metrics by step.

    Args:
        trained: the trained parameters; frozen ones come from the base.
        batch_size: of the global batch.
        source: facts of the data source that must be unchanged when the run is resumed.
    """

    def __init__(
        self,
        checkpoints: Checkpoints | None,
        trained: Mapping[str, nn.Parameter],
        optimiser: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler,
        world: World,
        batch_size: int,
        source: Mapping[str, str],
    ) -> None:
        self.step = self.epoch = self.cursor = 0
        self.best: float | None = None
        self.best_step = 0
        self.metrics: dict[int, dict[str, float]] = {}
        self._checkpoints, self._world = checkpoints, world
        self._trained, self._optimiser, self._scaler = trained, optimiser, scaler
        self._fixed = {"batch_size": batch_size, "source": dict(source)}

    def advance(self, cursor: int) -> None:
        """Count a step; the epoch continues from `cursor`."""
        self.step += 1
        self.cursor = cursor

    def next_epoch(self) -> None:
        """The epoch is over."""
        self.epoch += 1
        self.cursor = 0

    def save(self) -> None:
        """Write a checkpoint; every rank must call it."""
        cursors = self._world.everyones(self.cursor)
        if self._checkpoints is not None and self._world.leads:
            self._checkpoints.save(self._facts() | {"cursors": cursors}, self._tensors())
        self._world.wait()

    def keep_if_best(self, value: float, *, larger: bool) -> None:
        """Save the weights separately if `value` is finite and the best so far; only the leading rank calls it."""
        if not math.isfinite(value):
            return
        if self.best is not None and (value <= self.best if larger else value >= self.best):
            return
        self.best, self.best_step = value, self.step
        if self._checkpoints is not None:
            self._checkpoints.save_best(self._facts(), dict(self._trained))

    def resume(self) -> None:
        """Continue from the newest valid checkpoint, if there is one."""
        if self._checkpoints is not None:
            self._checkpoints.resume(self._restore)
        if len(steps := set(self._world.everyones(self.step))) > 1:
            raise InputError(
                f"the ranks resume at different steps ({min(steps)} and {max(steps)}): make train.checkpoint_dir a "
                "folder that all machines share"
            )

    def _facts(self) -> Facts:
        return {
            "step": self.step,
            "epoch": self.epoch,
            "best": self.best,
            "best_step": self.best_step,
            "metrics": {str(step): metrics for step, metrics in self.metrics.items()},
            "scaler": self._scaler.state_dict(),
            "fixed": self._fixed,
            "ranks": self._world.size,
        }

    def _tensors(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {f"weights.{name}": weights for name, weights in self._trained.items()}
        return tensors | optimiser_tensors(self._optimiser) | {"rng": torch.get_rng_state()}

    def _restore(self, facts: Facts, tensors: dict[str, Tensor]) -> None:
        self._compare(facts)
        copy_into(self._trained, {name: tensors[f"weights.{name}"] for name in self._trained})
        restore_optimiser(self._optimiser, tensors)
        if facts["scaler"]:
            self._scaler.load_state_dict(facts["scaler"])
        torch.set_rng_state(tensors["rng"])
        self.step, self.epoch, self.best = facts["step"], facts["epoch"], facts["best"]
        # Format 1 lacks these, which only describe the encoder in MLflow.
        self.best_step = facts.get("best_step", self.step)
        self.metrics = {int(step): metrics for step, metrics in facts.get("metrics", {}).items()}
        cursors = facts["cursors"]
        # Batches of a table are global: every rank is at the same one, for any number of ranks.
        self.cursor = cursors[self._world.rank] if len(cursors) == self._world.size else cursors[0]

    def _compare(self, facts: Facts) -> None:
        before, now = facts["fixed"], self._fixed
        if before["batch_size"] != now["batch_size"]:
            raise InputError(
                f"the checkpoint at step {facts['step']} has global batch {before['batch_size']}, this run "
                f"{now['batch_size']}: keep the batch size when the number of ranks changes, or delete the checkpoint"
            )
        if before["source"] != now["source"]:
            raise InputError(
                f"the checkpoint at step {facts['step']} was made by {facts['ranks']} ranks from another share of the "
                f"data ({before['source']}, now {now['source']}): use as many ranks, or delete the checkpoint"
            )
