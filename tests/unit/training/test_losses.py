"""InfoNCE against its closed form and a golden value."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from components.training.losses import info_nce


def test_orthogonal_pairs_have_the_closed_form() -> None:
    features, scale = torch.eye(4), torch.tensor(2.0)
    expected = -math.log(math.exp(2) / (math.exp(2) + 3))
    assert info_nce(features, features, scale).item() == pytest.approx(expected, abs=1e-6)


def test_equal_features_cost_log_of_the_batch() -> None:
    features = F.normalize(torch.ones(5, 3), dim=-1)
    assert info_nce(features, features, torch.tensor(10.0)).item() == pytest.approx(math.log(5), abs=1e-6)


def test_both_directions_count() -> None:
    one, other = torch.eye(3), torch.eye(3)[[0, 0, 2]]
    forwards = F.cross_entropy(one @ other.T, torch.arange(3))
    backwards = F.cross_entropy(other @ one.T, torch.arange(3))
    assert forwards != backwards
    assert info_nce(one, other, torch.tensor(1.0)).item() == pytest.approx(((forwards + backwards) / 2).item())


def test_golden_value() -> None:
    generator = torch.Generator().manual_seed(1)
    one = F.normalize(torch.randn(6, 8, generator=generator), dim=-1)
    other = F.normalize(torch.randn(6, 8, generator=generator), dim=-1)
    assert info_nce(one, other, torch.tensor(14.0)).item() == pytest.approx(GOLDEN, abs=1e-4)


GOLDEN = 8.3332968
