"""What steps cost, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from components.training.engine import meter as metering
from components.training.engine.gradients import MicroBatch, Towers
from components.training.engine.loop import fit
from components.training.engine.meter import Meter, Step
from components.training.rows.batches import Batch
from tests.support.toy_training import ToySource, toy_model, toy_run

NOTHING = torch.zeros(0, dtype=torch.int64)


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(metering, "time", clock)
    return clock


def test_rates_are_over_all_ranks_and_since_the_last_look(clock: Clock) -> None:
    meter = Meter("cpu", ranks=3)
    meter.count(4, 50)
    meter.count(4, 30)
    with meter.waiting():
        clock.now += 0.5
    clock.now += 1.5
    pace = meter.pace()
    assert pace.samples_per_second == pytest.approx(3 * 8 / 2)
    assert pace.tokens_per_second == pytest.approx(3 * 80 / 2)
    assert pace.data_wait_share == pytest.approx(0.25)
    assert pace.peak_memory_mb > 10
    assert pace.flop_utilisation is None
    clock.now += 1
    assert (meter.pace().samples_per_second, meter.pace().data_wait_share) == (0, 0)


@dataclass
class SlowSource(ToySource):
    """A source whose every batch takes three seconds and loses two samples."""

    clock: Clock = field(default_factory=Clock)

    def epoch(self, epoch: int, cursor: int = 0) -> Generator[Batch]:
        for batch in super().epoch(epoch, cursor):
            self.clock.now += 3
            yield replace(batch, lost=2)


def test_the_loop_measures_its_waiting_for_data_and_counts_lost_samples(clock: Clock) -> None:
    seen: list[Step] = []

    def losses(features: Any) -> dict[str, Tensor]:
        clock.now += 1
        return {"any": features["caption"].own.sum() + features.scale}

    source = SlowSource(clock=clock)
    fit(toy_run(toy_model(), {}, {"log_every": 5}, source=source, losses=losses, report=seen.append))
    tokens = [sum(int(rows.sum()) for batch in source.epoch(n) for rows in batch.lengths.values()) for n in (0, 1)]
    assert [step.pace.data_wait_share for step in seen] == pytest.approx([0.75, 0.75])
    assert [step.pace.samples_per_second for step in seen] == pytest.approx([1.0, 1.0])
    assert [step.pace.tokens_per_second for step in seen] == pytest.approx([count / 20 for count in tokens])
    assert [(step.number, step.lost) for step in seen] == [(5, 10), (10, 20)]


class Perceptron(nn.Module):
    """An image tower of two layers, whose operations can be counted by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3 * 4 * 4, 10, bias=False), nn.Linear(10, 6, bias=False)

    def encode_image(self, pixels: Tensor) -> Tensor:
        hidden: Tensor = self.first(pixels.flatten(1))
        features: Tensor = self.second(hidden)
        return features


PIXELS = MicroBatch(None, NOTHING, torch.zeros(5, 3, 4, 4, dtype=torch.uint8), torch.arange(5), np.zeros(0, np.int64))
# The first layer has no gradient to hand on to the pixels.
FORWARD_AND_BACKWARD = 2 * 5 * (2 * 48 * 10 + 3 * 10 * 6)


def test_utilisation_is_the_share_of_the_peak_and_keeps_gradients(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metering, "peak_flops", lambda _device: 1e6)
    model, meter = Perceptron(), Meter("cpu", ranks=4)
    kept = model.first.weight.grad = torch.ones_like(model.first.weight)
    assert meter.wants_flops()
    assert meter.pace().flop_utilisation is None
    meter.note_flops(Towers(model, "cpu"), [PIXELS, PIXELS], 10)
    assert not meter.wants_flops()
    assert model.first.weight.grad is kept
    assert model.second.weight.grad is None
    meter.count(20, 0)
    clock.now += 2
    assert meter.pace().flop_utilisation == pytest.approx(20 / 2 * FORWARD_AND_BACKWARD / 5 / 1e6)
