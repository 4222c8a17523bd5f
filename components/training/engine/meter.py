"""Measures a run: losses, rows and tokens per second, waiting for data, memory, share of peak FLOPs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import torch
from torch.utils.flop_counter import FlopCounterMode

from components.core.compute.devices import peak_flops, peak_memory
from components.training.engine.gradients import MicroBatch, Towers

if TYPE_CHECKING:
    from components.core.tracking import TrackedRun


@dataclass(frozen=True)
class Pace:
    """The run's pace since the last report, over all ranks; `flop_utilisation` is None if no peak is known."""

    samples_per_second: float
    tokens_per_second: float
    data_wait_share: float
    peak_memory_mb: float
    flop_utilisation: float | None


@dataclass(frozen=True)
class Step:
    """Facts of one optimisation step.

    Attributes:
        losses: by name, the mean over ranks.
        lost: unusable samples of all ranks since the run started or resumed.
    """

    number: int
    losses: Mapping[str, float]
    lr: float
    logit_scale: float
    gradient_norm: float
    pace: Pace
    lost: int = 0


class Meter:
    """Counts rows, tokens and waiting time of this rank between two reports, times the number of `ranks`."""

    def __init__(self, device: str, ranks: int = 1) -> None:
        self._device, self._ranks = device, ranks
        self._peak = peak_flops(device)
        self._flops_per_sample: float | None = None
        self.lost = 0
        """Unusable samples of this rank since the run started or resumed."""
        self._restart()

    def _restart(self) -> None:
        self._samples = self._tokens = 0
        self._waited = 0.0
        self._since = time.monotonic()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Time within the block counts as waiting for data."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._waited += time.monotonic() - start

    def count(self, samples: int, tokens: int, lost: int = 0) -> None:
        """Count a batch of this rank, and the samples lost before it."""
        self._samples += samples
        self._tokens += tokens
        self.lost += lost

    def wants_flops(self) -> bool:
        """Whether the peak is known and the FLOPs per row are not."""
        return self._peak is not None and self._flops_per_sample is None

    def note_flops(self, towers: Towers, pieces: list[MicroBatch], samples: int) -> None:
        """Count the floating-point operations of one batch's forward and backward pass."""
        self._flops_per_sample = sum(count_flops(towers, piece, self._device) for piece in pieces) / samples

    def pace(self) -> Pace:
        """The pace since the last call."""
        if self._device.startswith("cuda"):
            torch.cuda.synchronize(self._device)
        seconds = max(time.monotonic() - self._since, 1e-9)
        rate = self._samples / seconds
        known = self._peak is not None and self._flops_per_sample is not None
        pace = Pace(
            samples_per_second=rate * self._ranks,
            tokens_per_second=self._tokens / seconds * self._ranks,
            data_wait_share=self._waited / seconds,
            peak_memory_mb=peak_memory(self._device),
            flop_utilisation=rate * self._flops_per_sample / self._peak if known else None,  # type: ignore[operator]
        )
        self._restart()
        return pace


def count_flops(towers: Towers, piece: MicroBatch, device: str) -> float:
    """Operations of one forward and backward pass, without recomputed activations."""
    moved = (None if rows is None else rows.to(device) for rows in (piece.texts, piece.pixels))
    gradients = [(parameter, parameter.grad) for parameter in towers.parameters()]
    with FlopCounterMode(display=False) as counter:
        trained = [features for features in towers(*moved) if features is not None and features.requires_grad]
        torch.autograd.backward([features.sum() for features in trained])
    for parameter, gradient in gradients:
        parameter.grad = gradient
    return float(counter.get_total_flops())


def report_to(run: TrackedRun) -> Callable[[Step], None]:
    """A reporter that logs every step's losses, learning rate, logit scale, gradient norm and pace."""

    def report(step: Step) -> None:
        metrics = {f"loss/{name}": value for name, value in step.losses.items()}
        metrics |= {"loss/total": sum(step.losses.values()), "train/lost_samples": step.lost}
        metrics |= {f"train/{name}": getattr(step, name) for name in ("lr", "logit_scale", "gradient_norm")}
        metrics |= {f"train/{name}": value for name, value in asdict(step.pace).items() if value is not None}
        run.log_metrics(metrics, step.number)

    return report
