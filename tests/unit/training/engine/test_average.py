"""The moving average against its closed form, and weights that come back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from components.training.engine.run import MovingAverage


def _weights() -> dict[str, nn.Parameter]:
    return {"a": nn.Parameter(torch.tensor([1.0, 2.0])), "b": nn.Parameter(torch.tensor(3.0))}


@torch.no_grad()
def _set(weights: dict[str, nn.Parameter], value: float) -> None:
    for tensor in weights.values():
        tensor.fill_(value)


def test_closed_form() -> None:
    weights, decay, values = _weights(), 0.7, [5.0, -1.0, 2.0, 8.0]
    average = MovingAverage(weights, decay)
    for value in values:
        _set(weights, value)
        average.update()
    moved = sum((1 - decay) * decay ** (len(values) - 1 - step) * value for step, value in enumerate(values))
    torch.testing.assert_close(average.tensors["a"], decay ** len(values) * torch.tensor([1.0, 2.0]) + moved)
    torch.testing.assert_close(average.tensors["b"], decay ** len(values) * torch.tensor(3.0) + moved)
    assert weights["b"].item() == 8.0


def test_starts_at_the_weights() -> None:
    weights = _weights()
    assert torch.equal(MovingAverage(weights, 0.5).tensors["a"], torch.tensor([1.0, 2.0]))


def test_stands_in_for_the_weights_and_steps_back_even_after_an_error() -> None:
    weights = _weights()
    average = MovingAverage(weights, 0.5)
    _set(weights, 7.0)

    def fail() -> None:
        with average.as_weights():
            assert weights["a"].tolist() == [1.0, 2.0]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert weights["a"].tolist() == [7.0, 7.0]
    assert weights["a"].requires_grad


def test_is_put_for_good() -> None:
    weights = _weights()
    average = MovingAverage(weights, 0.5)
    _set(weights, 7.0)
    average.put()
    assert weights["a"].tolist() == [1.0, 2.0]
    _set(weights, 9.0)
    assert average.tensors["a"].tolist() == [1.0, 2.0]


def test_goes_on_from_a_saved_one() -> None:
    weights = _weights()
    average = MovingAverage(weights, 0.5)
    average.load({"a": torch.tensor([3.0, 3.0]), "b": torch.tensor(0.0)})
    _set(weights, 1.0)
    average.update()
    assert average.tensors["a"].tolist() == [2.0, 2.0]
    assert average.tensors["b"].item() == 0.5
