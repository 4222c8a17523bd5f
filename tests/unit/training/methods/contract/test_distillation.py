"""Distances to the base's features."""

from __future__ import annotations

import pytest
import torch

from components.training.methods.contract.losses import retention, structure_distance
from components.training.methods.registry import find_method
from tests.unit.training.methods.examples import as_features, random_columns, unit

NAMES = ("caption", "paraphrase_1", "base.caption", "base.paraphrase_1")


def test_retention_is_the_mean_squared_distance_of_unit_rows_over_columns() -> None:
    columns = random_columns(NAMES)
    weights = torch.linspace(0.3, 1.7, 8, dtype=torch.float64)
    each = [((unit(columns[name]) - unit(columns[f"base.{name}"])) ** 2).sum(axis=1) for name in NAMES[:2]]
    assert retention(as_features(columns)).item() == pytest.approx(sum(each).mean() / 2)  # type: ignore[attr-defined]
    weighted = (weights.numpy() * sum(each)).mean() / 2
    assert retention(as_features(columns, weights=weights)).item() == pytest.approx(weighted)


def test_a_methods_losses_have_a_retention_term_only_with_a_weight() -> None:
    method, features = find_method("caption_ft"), as_features(random_columns(("image", "caption", "base.caption")))
    held, free = method.read({"retention": 2}), method.read({})
    assert (held.reads_base, free.reads_base) == (True, False)
    found = held.objective(features)
    assert found["retention"].item() == pytest.approx(2 * retention(features).item())
    assert free.objective(features).keys() == found.keys() - {"retention"} == free.losses(features).keys()


def test_equal_rows_have_a_finite_gradient_of_their_structure() -> None:
    columns = random_columns(("caption", "base.caption"))
    with torch.no_grad():
        columns["caption"][1] = columns["caption"][0]
    columns["caption"].requires_grad_()
    structure_distance(as_features(columns), "caption").backward()
    assert torch.isfinite(columns["caption"].grad).all()
    assert columns["caption"].grad.norm() > 0
