"""What a training run is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from components.core.compute.checkpoint import Checkpoints
from components.core.compute.distributed import World
from components.methods.contract.features import Features
from components.methods.contract.optimisation import Optimisation
from components.training.engine.meter import Pace
from components.training.rows.batch import Source


@dataclass(frozen=True)
class Step:
    """What one optimisation step did.

    Attributes:
        losses: by name, the mean over ranks.
        pace: since the last report.
        lost: samples of all ranks that could not be used, since the run was started or resumed.
    """

    number: int
    losses: Mapping[str, float]
    lr: float
    logit_scale: float
    gradient_norm: float
    pace: Pace
    lost: int = 0


@dataclass(frozen=True)
class Engine:
    """How a run computes; none of it changes what is computed.

    Attributes:
        micro_batch: texts, and images, that go through the towers at once; None for all.
        autocast: element type of mixed precision; None for float32.
        compiled: whether torch compiles the towers.
    """

    device: str = "cpu"
    autocast: torch.dtype | None = None
    micro_batch: int | None = None
    compiled: bool = False
    world: World = field(default_factory=World)
    checkpoint_every: int = 50
    log_every: int = 10
    validate_every: int | None = None


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
        title: shown at the progress bar and in errors.
        model: an encoder's model; has `logit_scale`.
        trained: its trained parameters by name, and those of `extra`.
        losses: named loss terms of a batch; their sum is minimised.
        checkpoints: where the run's resume state is; None to do without.
        report: called by the leading rank every `log_every` steps and after the last one.
        validate: metrics on held-out rows, called by the leading rank every `validate_every` steps and after the last.
        select: metric and whether larger is better; the weights that do best by it are kept aside.
    """

    title: str
    model: nn.Module
    trained: Mapping[str, nn.Parameter]
    losses: Callable[[Features], dict[str, Tensor]]
    source: Source
    optimisation: Optimisation
    extra: nn.Module = field(default_factory=nn.Module)
    engine: Engine = field(default_factory=Engine)
    checkpoints: Checkpoints | None = None
    report: Callable[[Step], None] | None = None
    validate: Callable[[int], dict[str, float]] | None = None
    select: tuple[str, bool] | None = None
