"""The only training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from components.errors import InputError
from components.progress import bar
from components.training.checkpoint import Checkpoints
from components.training.optimisation import Optimisation
from components.training.sampler import Rows, Sampler
from components.training.schedule import check_warmup, rate_factor

MAX_LOGIT_SCALE = math.log(100)
"""Upper bound of the logit scale parameter, as CLIP clamps it after every step."""


@dataclass(frozen=True)
class Step:
    """What one optimisation step did: losses by name, learning rate, rows per second since the last report."""

    number: int
    losses: Mapping[str, float]
    lr: float
    samples_per_second: float
    logit_scale: float
    gradient_norm: float


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
        title: shown at the progress bar.
        model: has `logit_scale`; its trained parameters are in `trained`.
        losses: named loss terms of the rows of a batch; their sum is minimised.
        checkpoints: where the run's resume state is; None to do without.
        report: called every `log_every` steps and after the last one.
        autocast: element type of mixed precision; None for float32.
    """

    title: str
    model: nn.Module
    trained: Mapping[str, nn.Parameter]
    losses: Callable[[Rows], dict[str, Tensor]]
    sampler: Sampler
    optimisation: Optimisation
    checkpoints: Checkpoints | None = None
    checkpoint_every: int = 50
    report: Callable[[Step], None] | None = None
    log_every: int = 10
    device: str = "cpu"
    autocast: torch.dtype | None = None


def fit(run: Run) -> int:
    """Train to the end, from the newest checkpoint where there is one; returns the number of steps.

    Raises:
        InputError: the warm-up is as long as the run, there are too few rows for a batch, or a loss or
            gradient is not finite (the last checkpoint is kept).
    """
    plan = run.optimisation
    run.sampler.check(run.title)
    per_epoch = run.sampler.steps_per_epoch
    total = per_epoch * plan.epochs
    check_warmup(plan.warmup_steps, total)
    optimiser = make_optimiser(run.trained, plan)
    done = run.checkpoints.resume(run.model, optimiser) if run.checkpoints else 0
    run.model.train()
    clock = _Clock(done)
    with bar(run.title, total * plan.batch_size, "sample", done * plan.batch_size) as progress:
        for epoch in range(done // per_epoch, plan.epochs):
            for rows in run.sampler.epoch(epoch)[done - epoch * per_epoch if epoch == done // per_epoch else 0 :]:
                factor = rate_factor(plan.schedule, clock.step, total, plan.warmup_steps)
                for group in optimiser.param_groups:
                    group["lr"] = plan.lr * factor
                losses, norm = _step(run, optimiser, rows, clock.step)
                clock.step += 1
                progress.update(len(rows))
                if run.report and (clock.step % run.log_every == 0 or clock.step == total):
                    scale = float(run.model.logit_scale.detach().exp())  # type: ignore[operator,union-attr]
                    values = {name: float(value.detach()) for name, value in losses.items()}
                    speed = clock.rate(plan.batch_size)
                    run.report(Step(clock.step, values, plan.lr * factor, speed, scale, norm))
                    progress.set_postfix(loss=f"{sum(values.values()):.3f}")
                if run.checkpoints and clock.step % run.checkpoint_every == 0 and clock.step < total:
                    run.checkpoints.save(clock.step, run.model, optimiser)
    run.model.eval()
    return total


def make_optimiser(trained: Mapping[str, nn.Parameter], plan: Optimisation) -> torch.optim.AdamW:
    """AdamW without weight decay on norms, biases and the logit scale (parameters of at most one dimension)."""
    decayed = [parameter for parameter in trained.values() if parameter.ndim > 1]
    others = [parameter for parameter in trained.values() if parameter.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": plan.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=plan.lr, betas=plan.betas, eps=plan.eps)


def _step(run: Run, optimiser: torch.optim.Optimizer, rows: Rows, step: int) -> tuple[dict[str, Tensor], float]:
    with torch.autocast(run.device, run.autocast, enabled=run.autocast is not None):
        losses = run.losses(rows)
        loss = torch.stack(list(losses.values())).sum()
    if not torch.isfinite(loss):
        raise InputError(f"{run.title}: the loss is not finite at step {step}: lower lr; the last checkpoint is kept")
    optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    limit = run.optimisation.clip_gradient or math.inf
    norm = float(nn.utils.clip_grad_norm_(list(run.trained.values()), limit))
    if not math.isfinite(norm):
        raise InputError(f"{run.title}: the gradient is not finite at step {step}: lower lr or set clip_gradient")
    optimiser.step()
    with torch.no_grad():
        run.model.logit_scale.clamp_(0, MAX_LOGIT_SCALE)  # type: ignore[operator,union-attr]
    return losses, norm


class _Clock:
    """Counts steps and measures rows per second between reports."""

    def __init__(self, step: int) -> None:
        self.step = self._last_step = step
        self._last_time = time.monotonic()

    def rate(self, batch_size: int) -> float:
        now = time.monotonic()
        speed = (self.step - self._last_step) * batch_size / max(now - self._last_time, 1e-9)
        self._last_step, self._last_time = self.step, now
        return speed
