"""Contrastive losses against closed forms and a golden value; ranks' parts average to the whole."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from components.methods.contract.features import Feature, Features
from components.methods.contract.losses import contrast, info_nce, scale_at


def _whole(rows: Tensor) -> Feature:
    return Feature(rows, 0, len(rows))


def _random(rows: int, dim: int, seed: int) -> Tensor:
    return F.normalize(torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed)), dim=-1)


def test_orthogonal_pairs_have_the_closed_form() -> None:
    features, scale = _whole(torch.eye(4)), torch.tensor(2.0)
    expected = -math.log(math.exp(2) / (math.exp(2) + 3))
    assert info_nce(features, features, scale).item() == pytest.approx(expected, abs=1e-6)


def test_equal_features_cost_log_of_the_batch() -> None:
    features = _whole(F.normalize(torch.ones(5, 3), dim=-1))
    assert info_nce(features, features, torch.tensor(10.0)).item() == pytest.approx(math.log(5), abs=1e-6)


def test_both_directions_count() -> None:
    one, other = torch.eye(3), torch.eye(3)[[0, 0, 2]]
    forwards = F.cross_entropy(one @ other.T, torch.arange(3))
    backwards = F.cross_entropy(other @ one.T, torch.arange(3))
    assert forwards != backwards
    found = info_nce(_whole(one), _whole(other), torch.tensor(1.0))
    assert found.item() == pytest.approx(((forwards + backwards) / 2).item())


def test_golden_value() -> None:
    generator = torch.Generator().manual_seed(1)
    one = F.normalize(torch.randn(6, 8, generator=generator), dim=-1)
    other = F.normalize(torch.randn(6, 8, generator=generator), dim=-1)
    assert info_nce(_whole(one), _whole(other), torch.tensor(14.0)).item() == pytest.approx(GOLDEN, abs=1e-4)


GOLDEN = 8.3332968


def test_hard_negatives_join_the_candidates() -> None:
    anchor = _whole(torch.eye(3))
    negatives = _whole(torch.eye(3)[:2])
    found = contrast(anchor, anchor, negatives, scale=torch.tensor(2.0)).item()
    right = math.exp(2)
    # Anchors 0 and 1 have a negative that is as similar as their positive, anchor 2 has none.
    losses = [-math.log(right / (2 * right + 3)), -math.log(right / (2 * right + 3)), -math.log(right / (right + 4))]
    assert found == pytest.approx(sum(losses) / 3, abs=1e-6)


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_mean_of_the_ranks_is_the_loss_of_the_global_batch(ranks: int) -> None:
    one, other, hard = (_random(8, 5, seed) for seed in range(3))
    scale, share = torch.tensor(9.0), 8 // ranks
    parts = [[Feature(rows, rank * share, share) for rows in (one, other, hard)] for rank in range(ranks)]
    whole = [_whole(rows) for rows in (one, other, hard)]
    means = torch.stack([contrast(*part, scale=scale) for part in parts]).mean()
    torch.testing.assert_close(means, contrast(*whole, scale=scale))
    torch.testing.assert_close(
        torch.stack([info_nce(part[0], part[1], scale) for part in parts]).mean(), info_nce(whole[0], whole[1], scale)
    )


def test_a_temperature_stands_in_for_the_logit_scale() -> None:
    features = Features({}, torch.tensor(14.0, requires_grad=True), nn.Module())
    assert scale_at(features, None) is features.scale
    fixed = scale_at(features, 0.1)
    assert fixed.item() == pytest.approx(10.0)
    assert not fixed.requires_grad
