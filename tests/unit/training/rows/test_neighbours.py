"""Nearest other images against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.errors import InputError
from components.training.rows.neighbours import NEIGHBOURS, nearest


def _unit(rows: int, seed: int = 0) -> np.ndarray:  # type: ignore[type-arg]
    found = np.random.default_rng(seed).normal(size=(rows, 5)).astype(np.float32)
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


@given(st.lists(st.integers(0, 11), min_size=4, max_size=30).filter(lambda rows: len(set(rows)) > 3), st.integers(0, 5))
def test_rows_of_the_most_similar_other_images(images: list[int], seed: int) -> None:
    features = _unit(12, seed)
    found = nearest(features, np.array(images))
    assert found.shape == (len(images), NEIGHBOURS)
    for image, rows in zip(images, found, strict=True):
        others = sorted(set(images) - {image}, key=lambda other: -float(features[image] @ features[other]))
        assert [images[row] for row in rows] == others[:NEIGHBOURS]


def test_no_caption_of_an_image_has_another_caption_of_it_as_its_neighbour() -> None:
    images = np.array([0, 0, 0, 0, 0, 5, 6, 6, 7])
    found = nearest(_unit(9), images)
    assert all(image not in images[rows] for image, rows in zip(images, found, strict=True))
    assert all(len(set(images[rows])) == NEIGHBOURS for rows in found)


def test_another_image_with_the_same_features_is_a_neighbour_and_the_image_itself_is_not() -> None:
    features = _unit(8)
    features[1:6] = features[0]
    found = nearest(features, np.arange(8))
    assert all(row not in rows for row, rows in enumerate(found.tolist()))
    assert all(set(rows) <= set(range(6)) for rows in found[:6].tolist())


@pytest.mark.parametrize("images", [[0, 1, 2], [0, 0, 1, 1, 2, 2]])
def test_too_few_images_are_refused(images: list[int]) -> None:
    with pytest.raises(InputError, match="3 different images are too few to draw from 3 neighbours: add rows"):
        nearest(_unit(3), np.array(images))
    assert nearest(_unit(3), np.array(images), count=2).shape == (len(images), 2)
