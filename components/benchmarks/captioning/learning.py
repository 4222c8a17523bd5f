"""The loop in which both stages learn: AdamW over shuffled pairs, the best epoch by the validation split."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from components.core.metrics import Indices
from components.core.progress import bar

Loss = Callable[[Indices, Indices], Tensor]
"""The loss of pairs `[batch]` with one sentence of each `[batch]`."""

_NARROW = 128


@dataclass(frozen=True)
class Course:
    """How long and how fast a stage learns.

    Attributes:
        title: of its progress bar.
        epochs: times that every pair is visited, each time with another of its sentences.
        batch: pairs of a step.
        lr: highest learning rate for 128 dimensions and fewer, lower in proportion for more; it is reached after a
            tenth of the steps and then lowered to zero by a cosine.
        weight_decay: AdamW's.
        clip: largest norm of a step's gradient.
    """

    title: str
    epochs: int
    batch: int
    lr: float
    weight_decay: float = 0.01
    clip: float = 1.0


def learn(
    modules: nn.ModuleList,
    course: Course,
    dim: int,
    pairs: int,
    loss: Loss,
    draw: Callable[[np.random.Generator], Indices],
    validated: Callable[[], float],
    seed: int,
) -> None:
    """Train `modules` in place and leave them in evaluation mode, as they were after their best epoch.

    Args:
        modules: what learns.
        course: for how long.
        dim: width of the modules.
        pairs: training pairs that there are.
        loss: of a batch.
        draw: a sentence of each training pair `[pairs]`.
        validated: the loss on the validation split, modules in evaluation mode.
        seed: of order and sentences; dropout follows torch's own generator.
    """
    generator = np.random.default_rng(seed)
    batches = math.ceil(pairs / course.batch)
    steps = course.epochs * batches
    highest = course.lr * min(1.0, _NARROW / dim)
    optimiser = torch.optim.AdamW(modules.parameters(), highest, weight_decay=course.weight_decay)
    pace = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _pace(step, steps))
    best, kept = math.inf, _state(modules)
    with bar(course.title, steps, "step") as progress:
        for _ in range(course.epochs):
            modules.train()
            chosen = draw(generator)
            for rows in np.array_split(generator.permutation(pairs), batches):
                optimiser.zero_grad()
                loss(rows, chosen[rows]).backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(modules.parameters(), course.clip)
                optimiser.step()
                pace.step()
                progress.update()
            modules.eval()
            with torch.inference_mode():
                found = validated()
            if found < best:
                best, kept = found, _state(modules)
    modules.load_state_dict(kept)


def _pace(step: int, steps: int) -> float:
    """Share of the learning rate: up in a straight line for a tenth of the steps, then down to 0 by a cosine."""
    warm = max(1, steps // 10)
    return min((step + 1) / warm, 0.5 * (1 + math.cos(math.pi * max(0, step - warm) / max(1, steps - warm))))


def _state(modules: nn.ModuleList) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in modules.state_dict().items()}
