"""Features and contrastive losses against closed forms and a golden value; ranks' parts average to the whole."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from components.methods.contract.losses import Feature, Features, contrast, info_nce, scale_at


def _features(first: int = 0, count: int = 4) -> Features:
    raw = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)) * 5
    columns = {name: Feature(raw + place, first, count) for place, name in enumerate(("image", "caption"))}
    return Features(columns, torch.tensor(2.0), nn.Module())


def test_columns_have_unit_rows_and_raw_ones_keep_their_length() -> None:
    features = _features()
    torch.testing.assert_close(features["caption"].all.norm(dim=1), torch.ones(4))
    raw = features.raw("caption").all
    assert (raw.norm(dim=1) > 1.5).any()
    torch.testing.assert_close(features["caption"].all, raw / raw.norm(dim=1, keepdim=True))


def test_a_function_of_rows_knows_whose_rows_they_are() -> None:
    features = _features(first=1, count=2)
    difference = features.raw("image").with_(torch.sub, features.raw("caption"))
    torch.testing.assert_close(difference.all, torch.full((4, 3), -1.0))
    assert (difference.first, difference.count) == (1, 2)


def _whole(rows: Tensor) -> Feature:
    return Feature(rows, 0, len(rows))


def _random(rows: int, dim: int, seed: int) -> Tensor:
    return F.normalize(torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed)), dim=-1)


def test_orthogonal_pairs_have_the_closed_form() -> None:
    features, scale = _whole(torch.eye(4)), torch.tensor(2.0)
    expected = -math.log(math.exp(2) / (math.exp(2) + 3))
    assert info_nce(features, features, scale).item() == pytest.approx(expected, abs=1e-6)


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


SIMILAR = torch.tensor([[0.9, 0.1, 0.3], [0.2, 0.5, 0.8], [0.4, 0.6, 0.7]])


def _facts(weights: list[float] | None = None, alike: list[list[int]] | None = None) -> tuple[Feature, Feature]:
    """Two columns whose products are `SIMILAR`, with these facts of their rows."""
    facts = {
        "weights": None if weights is None else torch.tensor(weights),
        "alike": None if alike is None else torch.tensor(alike, dtype=torch.bool),
    }
    return Feature(SIMILAR, 0, 3, **facts), Feature(torch.eye(3), 0, 3, **facts)  # type: ignore[arg-type]


def _picking(row: int, among: list[int]) -> float:
    """What it costs row `row` of the first column to find its own among these of the second, at scale 2."""
    return -math.log(math.exp(2 * SIMILAR[row, row]) / sum(math.exp(2 * SIMILAR[row, column]) for column in among))


def test_the_weighted_loss_is_the_weighted_mean_of_the_rows() -> None:
    """Weights 3, 1 and 2 come divided by their mean."""
    one, other = _facts([1.5, 0.5, 1.0])
    rows = [_picking(row, [0, 1, 2]) for row in range(3)]
    assert contrast(one, other, scale=torch.tensor(2.0)).item() == pytest.approx(
        (3 * rows[0] + 1 * rows[1] + 2 * rows[2]) / (3 + 1 + 2), abs=1e-6
    )


def test_rows_that_are_alike_are_no_negatives_of_each_other() -> None:
    one, other = _facts(alike=[[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    rows = [_picking(0, [0, 2]), _picking(1, [1, 2]), _picking(2, [0, 1, 2])]
    assert contrast(one, other, scale=torch.tensor(2.0)).item() == pytest.approx(sum(rows) / 3, abs=1e-6)


def test_hard_negatives_of_a_row_that_is_alike_stay() -> None:
    one, other = _facts(alike=[[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    hard = Feature(torch.zeros(1, 3), 0, 1)
    rows = [-math.log(math.exp(2 * SIMILAR[row, row]) / (math.exp(2 * SIMILAR[row, row]) + 1)) for row in range(3)]
    assert contrast(one, other, hard, scale=torch.tensor(2.0)).item() == pytest.approx(sum(rows) / 3, abs=1e-6)


def test_only_columns_that_both_say_so_are_alike() -> None:
    (one, other), (plain, _) = _facts(alike=[[0, 1, 0], [1, 0, 0], [0, 0, 0]]), _facts()
    expected = contrast(plain, plain, scale=torch.tensor(2.0))
    said = replace(one, all=plain.all)
    for pair in ((plain, said), (said, plain)):
        assert torch.equal(contrast(*pair, scale=torch.tensor(2.0)), expected)
    assert contrast(said, said, scale=torch.tensor(2.0)) < expected
    difference = other.with_(torch.sub, other).with_(lambda rows: rows)
    assert difference.alike is None
    assert one.with_(lambda rows: 2 * rows).alike is one.alike


def test_a_temperature_stands_in_for_the_logit_scale() -> None:
    features = Features({}, torch.tensor(14.0, requires_grad=True), nn.Module())
    assert scale_at(features, None) is features.scale
    fixed = scale_at(features, 0.1)
    assert fixed.item() == pytest.approx(10.0)
    assert not fixed.requires_grad
