"""One optimisation step: learning rate, gradients, clipping, weights, logit scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from components.core.compute.distributed import World
from components.core.system.errors import InputError
from components.training.engine.gradients import BatchLosses, Objective, Towers, backward, cut
from components.training.engine.meter import Meter
from components.training.engine.run import Run, State

if TYPE_CHECKING:
    from components.training.methods.contract.method import Optimisation
    from components.training.rows.batches import Batch

SCHEDULES: dict[str, Callable[[int, int, float], float]] = {
    "cosine": lambda step, total, _: 0.5 * (1 + math.cos(math.pi * step / total)),
    "constant": lambda _step, _total, _: 1.0,
    "exponential": lambda _step, _total, decay: decay,
}
"""Factor of the peak learning rate by steps since the warm-up, steps to the end, and the decay by epochs."""

MAX_LOGIT_SCALE = math.log(100)
"""Upper bound of the logit scale parameter, as CLIP clamps it after every step."""


_MOST_SKIPPED = 40
"""Consecutive steps that a gradient scaler may skip; after that many halvings, its factor of 65,536 is below one."""


class NonFiniteError(InputError):
    """A loss or gradient is not finite; the weights are those of the last good step."""

    def __init__(self, message: str, step: int, ids: list[str]) -> None:
        super().__init__(message)
        self.step = step
        self.ids = ids


@dataclass(frozen=True)
class Done:
    """A finished step: its last batch's losses, the gradient's norm before clipping, the learning rate."""

    last: BatchLosses
    gradient_norm: float
    lr: float


_IN_LOSS = ["model.logit_scale", "model.logit_bias"]
"""Parameters of `Towers` that only losses read."""


class Stepper:
    """The moving parts of a run."""

    def __init__(self, run: Run, optimiser: torch.optim.AdamW, per_epoch: int) -> None:
        options, plan = run.options, run.optimisation
        self._run = run
        self._optimiser = optimiser
        self._per_epoch = per_epoch
        self._skipped = 0
        self._scaler = torch.amp.GradScaler(options.device.split(":")[0], enabled=options.autocast == torch.float16)
        self.state = State(
            run.checkpoints, run.trained, optimiser, self._scaler, options.world, plan.batch_size, run.source.describe()
        )
        self._plain = Towers(run.model, options.device, options.autocast, preparation=run.preparation)
        towers = Towers(run.model, options.device, options.autocast, options.compiled, run.preparation)
        # DDP does not see these: they are in the loss and not in the towers.
        self._outside_towers = [
            parameter
            for parameter in (run.model.logit_scale, getattr(run.model, "logit_bias", None), *run.extra.parameters())
            if isinstance(parameter, nn.Parameter) and parameter.requires_grad
        ]
        self._objective = Objective(
            towers=_distribute(towers, options.world) if _has_trained(towers) else towers,
            model=run.model,
            extra=run.extra,
            losses=run.losses,
            perturb=run.perturb,
            micro_batch=options.micro_batch,
            world=options.world,
            device=options.device,
            teacher=run.teacher,
        )

    def step(self, batches: list[Batch], meter: Meter) -> Done:
        """One step on `accumulate` batches; NonFiniteError leaves the weights unchanged, with a checkpoint of them."""
        run, plan, world = self._run, self._run.optimisation, self._run.options.world
        lr = plan.lr * rate_factor(plan, self.state.step, self._per_epoch)
        for group in self._optimiser.param_groups:
            group["lr"] = lr * group["rate"]
        self._optimiser.zero_grad(set_to_none=True)
        if meter.wants_flops():
            pieces = cut(batches[0], run.options.micro_batch)
            meter.note_flops(self._plain, pieces, len(batches[0].ids))
        for place, batch in enumerate(batches):
            sync = place == len(batches) - 1
            last = backward(self._objective, batch, self._scaled, sync, self.state.epoch)
            meter.count(len(batch.ids), last.tokens, batch.lost)
            if not all(math.isfinite(float(loss)) for loss in last.losses.values()):
                self._stop("loss", batches)
        world.average(parameter.grad for parameter in self._outside_towers if parameter.grad is not None)
        self._scaler.unscale_(self._optimiser)
        norm = self._clip(plan.clip_gradient)
        # A gradient scaler skips such a step and halves its factor; without one the weights would be destroyed.
        self._skipped = 0 if math.isfinite(norm) else self._skipped + 1
        if self._skipped > (_MOST_SKIPPED if self._scaler.is_enabled() else 0):
            self._stop("gradient", batches)
        self._scaler.step(self._optimiser)
        self._scaler.update()
        if plan.learn_logit_scale:
            with torch.no_grad():
                run.model.logit_scale.clamp_(0, MAX_LOGIT_SCALE)  # type: ignore[operator,union-attr]
        return Done(last, norm, lr)

    def _clip(self, limit: float | None) -> float:
        """Scale the gradient down to the norm `limit`; returns its norm before that."""
        trained = [parameter for parameter in self._run.trained.values() if parameter.grad is not None]
        norm = nn.utils.get_total_norm([parameter.grad for parameter in trained if parameter.grad is not None])
        if limit is not None:
            nn.utils.clip_grads_with_norm_(trained, limit, norm)
        return float(norm)

    def validate(self) -> None:
        """Score the weights that would be exported now, and keep a copy if they are the best so far."""
        run, state = self._run, self.state
        if run.options.world.leads and run.validate is not None:
            with run.exported():
                metrics = run.validate(replace(self._objective, towers=self._plain), state.step)
            state.metrics[state.step] = metrics
            if run.select and run.select[0] in metrics:
                state.keep_if_best(metrics[run.select[0]], larger=run.select[1])
        run.options.world.wait()

    def _scaled(self, loss: Tensor) -> Tensor:
        scaled: Tensor = self._scaler.scale(loss / self._run.optimisation.accumulate)
        return scaled

    def _stop(self, quantity: str, batches: list[Batch]) -> None:
        state = self.state
        state.save()
        fix = "lower lr" if quantity == "loss" else "lower lr or set clip_gradient"
        step = state.step + 1
        raise NonFiniteError(
            f"{self._run.title}: the {quantity} is not finite at step {step}: {fix}, with which the run starts over",
            step,
            [name for batch in batches for name in batch.ids],
        )


def _has_trained(towers: Towers) -> bool:
    return any(parameter.requires_grad for name, parameter in towers.named_parameters() if name not in _IN_LOSS)


def _distribute(towers: Towers, world: World) -> Towers | DistributedDataParallel:
    if world.size == 1:
        return towers
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call]
        towers, _IN_LOSS
    )
    return DistributedDataParallel(towers, gradient_as_bucket_view=True)


def rate_factor(plan: Optimisation, step: int, per_epoch: int) -> float:
    """The learning rate at `step` (from 0) as a factor of its peak: linear warm-up, then the schedule.

    The exponential schedule counts whole epochs, warm-up included.
    """
    if step < plan.warmup_steps:
        return (step + 1) / plan.warmup_steps
    total = max(1, per_epoch * plan.epochs - plan.warmup_steps)
    return SCHEDULES[plan.schedule](step - plan.warmup_steps, total, plan.gamma ** (step // per_epoch))


def make_optimiser(
    trained: Mapping[str, nn.Parameter], plan: Optimisation, rates: Mapping[str, float] = MappingProxyType({})
) -> torch.optim.AdamW:
    """AdamW; norms, biases and the logit scale (at most one dimension) decay only with `decay_all`.

    Each group's `rate` is the factor of the learning rate in `rates` for its parameters, else 1.
    """
    groups: dict[tuple[float, bool], dict[str, Any]] = {}
    for rate in (1.0, *sorted(set(rates.values()) - {1.0})):
        for decays in (True, False):
            groups[rate, decays] = {"params": [], "weight_decay": plan.weight_decay if decays else 0.0, "rate": rate}
    for name, parameter in trained.items():
        rate = next((factor for start, factor in rates.items() if name.startswith(start)), 1.0)
        groups[rate, plan.decay_all or parameter.ndim > 1]["params"].append(parameter)
    # The fused update reads and writes every weight once; on a CPU it is several times faster than a loop.
    return torch.optim.AdamW(list(groups.values()), lr=plan.lr, betas=plan.betas, eps=plan.eps, fused=True)
