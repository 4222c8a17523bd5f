"""What losses see: unit rows of all ranks, and which of them are this rank's."""

from __future__ import annotations

import torch
from torch import nn

from components.methods.contract.losses import Feature, Features


def _features(first: int = 0, count: int = 4) -> Features:
    raw = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)) * 5
    columns = {name: Feature(raw + place, first, count) for place, name in enumerate(("image", "caption"))}
    return Features(columns, torch.tensor(2.0), nn.Module())


def test_own_rows_are_a_slice_of_all() -> None:
    feature = _features(first=2, count=2).raw("image")
    assert torch.equal(feature.own, feature.all[2:])


def test_columns_have_unit_rows_and_raw_ones_keep_their_length() -> None:
    features = _features()
    torch.testing.assert_close(features["caption"].all.norm(dim=1), torch.ones(4))
    raw = features.raw("caption").all
    assert (raw.norm(dim=1) > 1.5).any()
    torch.testing.assert_close(features["caption"].all, raw / raw.norm(dim=1, keepdim=True))


def test_rows_are_normalised_once() -> None:
    features = _features()
    assert features["image"].all is features["image"].all


def test_a_function_of_rows_knows_whose_rows_they_are() -> None:
    features = _features(first=1, count=2)
    difference = features.raw("image").with_(torch.sub, features.raw("caption"))
    torch.testing.assert_close(difference.all, torch.full((4, 3), -1.0))
    assert (difference.first, difference.count) == (1, 2)
