"""Features, contrastive losses and distances to the base's features against closed forms."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from open_clip.loss import SigLipLoss
from torch import nn

from components.training.methods.contract.losses import (
    Feature,
    Features,
    Sigmoid,
    contrast,
    has_sigmoid_loss,
    info_nce,
    retention,
    scale_at,
    structure_distance,
)
from components.training.methods.registry import find_method
from tests.unit.training.methods.examples import as_features, random_columns, unit


def _features(first: int, count: int) -> Features:
    raw = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)) * 5
    columns = {name: Feature(raw + place, first, count) for place, name in enumerate(("image", "caption"))}
    return Features(columns, torch.tensor(2.0), nn.Module())


def test_columns_have_unit_rows_raw_ones_their_length_and_functions_of_them_their_place() -> None:
    features = _features(first=1, count=2)
    raw = features.raw("caption").all
    assert (raw.norm(dim=1) > 1.5).any()
    torch.testing.assert_close(features["caption"].all, raw / raw.norm(dim=1, keepdim=True))
    difference = features.raw("image").with_(torch.sub, features.raw("caption"))
    torch.testing.assert_close(difference.all, torch.full((4, 3), -1.0))
    assert (difference.first, difference.count) == (1, 2)


def test_hard_negatives_join_the_candidates() -> None:
    anchor, negatives = Feature(torch.eye(3), 0, 3), Feature(torch.eye(3)[:2], 0, 2)
    found = contrast(anchor, anchor, negatives, scale=torch.tensor(2.0)).item()
    right = math.exp(2)
    # Anchors 0 and 1 have a negative that is as similar as their positive, anchor 2 has none.
    expected = -(2 * math.log(right / (2 * right + 3)) + math.log(right / (right + 4))) / 3
    assert found == pytest.approx(expected, abs=1e-6)


SIMILAR = torch.tensor([[0.9, 0.1, 0.3], [0.2, 0.5, 0.8], [0.4, 0.6, 0.7]])


def _columns(alike: list[list[int]] | None = None) -> tuple[Feature, Feature]:
    """Two columns whose products are `SIMILAR`, with rows alike where this matrix has a one."""
    rows = None if alike is None else torch.tensor(alike, dtype=torch.bool)
    return Feature(SIMILAR, 0, 3, alike=rows), Feature(torch.eye(3), 0, 3, alike=rows)


def _picking(row: int, candidates: list[int]) -> float:
    """Minus the log-probability of the right candidate for a row of the first column, at scale 2."""
    return -math.log(math.exp(2 * SIMILAR[row, row]) / sum(math.exp(2 * SIMILAR[row, column]) for column in candidates))


def test_rows_that_are_alike_are_no_negatives_if_both_columns_say_so() -> None:
    first, second = _columns([[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    rows = [_picking(0, [0, 2]), _picking(1, [1, 2]), _picking(2, [0, 1, 2])]
    assert contrast(first, second, scale=torch.tensor(2.0)).item() == pytest.approx(sum(rows) / 3, abs=1e-6)
    first, second = _columns([[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    hard = Feature(torch.zeros(1, 3), 0, 1)
    rows = [-math.log(math.exp(2 * SIMILAR[row, row]) / (math.exp(2 * SIMILAR[row, row]) + 1)) for row in range(3)]
    assert contrast(first, second, hard, scale=torch.tensor(2.0)).item() == pytest.approx(sum(rows) / 3, abs=1e-6)
    (first, second), (plain, _) = _columns([[0, 1, 0], [1, 0, 0], [0, 0, 0]]), _columns()
    expected, both = contrast(plain, plain, scale=torch.tensor(2.0)), replace(first, all=plain.all)
    for pair in ((plain, both), (both, plain)):
        assert torch.equal(contrast(*pair, scale=torch.tensor(2.0)), expected)
    assert contrast(both, both, scale=torch.tensor(2.0)) < expected
    assert second.with_(torch.sub, second).alike is None
    assert first.with_(lambda rows: 2 * rows).alike is first.alike


SIGMOID = Sigmoid(torch.tensor(9.0), torch.tensor(-8.0))


def test_the_sigmoid_loss_is_siglips_and_by_hand() -> None:
    rows = F.normalize(torch.randn(6, 5, generator=torch.Generator().manual_seed(0)), dim=1)
    others = F.normalize(rows + 0.3, dim=1)
    wanted = SigLipLoss()(rows, others, SIGMOID.scale, SIGMOID.bias)
    torch.testing.assert_close(info_nce(Feature(rows, 0, 6), Feature(others, 0, 6), SIGMOID), wanted)
    parts = [info_nce(Feature(rows, first, 3), Feature(others, first, 3), SIGMOID) for first in (0, 3)]
    torch.testing.assert_close(torch.stack(parts).mean(), wanted)
    first, second = _columns([[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    hard, foil = Feature(torch.tensor([[1.0, 0.0, 0.0]]), 0, 1), Feature(torch.eye(3).roll(1, 0), 0, 3)
    weighted = replace(first, weights=torch.tensor([2.0, 0.5, 0.5]))

    def row(place: int, negatives: list[float]) -> float:
        positive = math.log1p(math.exp(-(9 * SIMILAR[place, place] - 8)))
        return positive + sum(math.log1p(math.exp(9 * value - 8)) for value in negatives)

    rows = [row(0, [0.3, 0.9, 0.3]), row(1, [0.8, 0.2, 0.2]), row(2, [0.4, 0.6, 0.4, 0.6])]
    expected = (2 * rows[0] + 0.5 * rows[1] + 0.5 * rows[2]) / 3
    assert contrast(weighted, second, hard, scale=SIGMOID, foil=foil).item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("scale", [torch.tensor(3.0), SIGMOID], ids=["softmax", "sigmoid"])
def test_nested_dimensions_add_the_contrast_of_each_prefix_at_length_one(scale: Any) -> None:
    rows = F.normalize(torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(0)), dim=2)

    def loss(dim: int, prefixes: tuple[int, ...] = ()) -> torch.Tensor:
        cut = F.normalize(rows[:, :, :dim], dim=2)
        anchor, positive, hard, foil = (Feature(one, 1, 4, prefixes=prefixes) for one in cut)
        return contrast(anchor, positive, hard, scale=scale, foil=foil)

    torch.testing.assert_close(loss(5, (2, 4)), loss(5) + loss(2) + loss(4))


@pytest.mark.parametrize("scale", [torch.tensor(3.0), SIGMOID], ids=["softmax", "sigmoid"])
def test_a_temperature_has_no_bias_and_texts_no_scale_of_images(scale: Any) -> None:
    features = replace(_features(0, 4), scale=scale)
    found = scale_at(features, 0.1)
    assert isinstance(found, torch.Tensor)
    assert found.item() == pytest.approx(10.0)
    assert scale_at(features, None) is scale
    assert features.text_scale.item() == pytest.approx(1 / 0.07 if isinstance(scale, Sigmoid) else 3.0)


def test_the_loss_follows_the_logit_bias() -> None:
    plain, biased = nn.Module(), nn.Module()
    biased.logit_bias = nn.Parameter(torch.tensor(-8.0))
    assert [has_sigmoid_loss(model) for model in (plain, biased)] == [False, True]


NAMES = ("caption", "paraphrase_1", "base.caption", "base.paraphrase_1")


def test_retention_is_of_unit_rows_and_structure_has_finite_gradients() -> None:
    columns = random_columns(NAMES)
    weights = torch.linspace(0.3, 1.7, 8, dtype=torch.float64)
    each = [((unit(columns[name]) - unit(columns[f"base.{name}"])) ** 2).sum(axis=1) for name in NAMES[:2]]
    assert retention(as_features(columns)).item() == pytest.approx(sum(each).mean() / 2)  # type: ignore[attr-defined]
    weighted = (weights.numpy() * sum(each)).mean() / 2
    assert retention(as_features(columns, weights=weights)).item() == pytest.approx(weighted)
    method, features = find_method("caption_ft"), as_features(random_columns(("image", "caption", "base.caption")))
    held, free = method.read({"retention": 2}), method.read({})
    assert (held.reads_base, free.reads_base) == (True, False)
    found = held.objective(features)
    assert found["retention"].item() == pytest.approx(2 * retention(features).item())
    assert free.objective(features).keys() == found.keys() - {"retention"} == free.losses(features).keys()
    columns = random_columns(("caption", "base.caption"))
    with torch.no_grad():
        columns["caption"][1] = columns["caption"][0]
    columns["caption"].requires_grad_()
    structure_distance(as_features(columns), "caption").backward()
    assert torch.isfinite(columns["caption"].grad).all()
    assert columns["caption"].grad.norm() > 0
