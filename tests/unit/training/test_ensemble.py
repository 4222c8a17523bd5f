"""Weights between the base's and the fine-tuned ones."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from components.core.errors import InputError
from components.training.train import check_ensemble, ensemble


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, [1.0, 1.0]), (0.25, [1.5, 0.5]), (0.5, [2.0, 0.0]), (1.0, [3.0, -1.0])]
)
def test_share_is_that_of_the_fine_tuned_weights(share: float, expected: list[float]) -> None:
    trained, base = {"a": nn.Parameter(torch.tensor([3.0, -1.0]))}, {"a": torch.ones(2), "frozen": torch.zeros(1)}
    ensemble(share, trained, base)
    assert trained["a"].tolist() == expected
    assert base["a"].tolist() == [1.0, 1.0]


def test_towers_that_the_base_does_not_have_are_refused() -> None:
    base = {"a": torch.ones(2)}
    for odd in ({"new": nn.Parameter(torch.ones(2))}, {"a": nn.Parameter(torch.ones(3))}):
        with pytest.raises(InputError, match=f"weight_ensemble 0.5 needs a base .* it has no '{next(iter(odd))}'"):
            check_ensemble(0.5, odd, base)
        check_ensemble(1.0, odd, base)
    check_ensemble(0.5, {"a": nn.Parameter(torch.ones(2))}, base)


def test_towers_that_do_not_start_from_the_base_are_refused() -> None:
    new = {"a": nn.Parameter(torch.zeros(2))}
    with pytest.raises(InputError, match="but 'a' starts at random: set it to 1"):
        check_ensemble(0.5, new, {"a": torch.ones(2)})
    check_ensemble(1.0, new, {})
