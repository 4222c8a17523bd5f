"""Nearest other images against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.errors import InputError
from components.methods.contract.neighbours import Neighbours
from components.training.rows.sources import OtherImages, nearest, nearest_among

NEIGHBOURS = Neighbours.count


def _unit(rows: int, seed: int = 0) -> np.ndarray:  # type: ignore[type-arg]
    found = np.random.default_rng(seed).normal(size=(rows, 5)).astype(np.float32)
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


def _at(*degrees: float) -> np.ndarray:  # type: ignore[type-arg]
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


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


# The gallery's pictures stand at 0, 60, 90 and 90 degrees, the rows' own at 10 and 80.
GALLERY = OtherImages(["a", "b", "c", "c"], _at(0, 60, 90, 90), np.array([1, 2, 3, 4], np.float32))


def test_the_nearest_of_another_table_by_hand() -> None:
    images = np.array([1, 0, 1])
    assert nearest_among(_at(10, 80), images, ["x", "y"], GALLERY, count=1).tolist() == [[2], [0], [2]]
    assert nearest_among(_at(10, 80), images, ["x", "y"], GALLERY, count=2).tolist() == [[2, 1], [0, 1], [2, 1]]


def test_an_image_of_both_tables_is_not_its_own_neighbour() -> None:
    assert nearest_among(_at(0, 80), np.array([0, 1]), ["a", "y"], GALLERY, count=1).tolist() == [[1], [2]]


def test_raw_features_of_another_table_have_their_lengths() -> None:
    found = GALLERY.raw(np.array([3, 0])).numpy()
    np.testing.assert_allclose(found, [[0, 4], [1, 0]], atol=1e-6)


def test_too_few_images_in_another_table_are_refused() -> None:
    with pytest.raises(InputError, match="3 different images are too few to draw from 3 neighbours"):
        nearest_among(_at(10), np.array([0]), ["x"], GALLERY, count=3)
