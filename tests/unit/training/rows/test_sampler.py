"""Batches hold each image once, depend on seed and epoch alone, and drop the partial one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.errors import InputError
from components.training.rows.batches import Sampler, groups_of


@given(st.lists(st.integers(0, 20), min_size=1, max_size=80), st.integers(1, 5), st.integers(0, 9), st.integers(0, 9))
def test_an_epoch_shows_no_group_twice(groups: list[int], batch_size: int, seed: int, epoch: int) -> None:
    sampler = Sampler(np.array(groups), batch_size, seed)
    batches = sampler.epoch(epoch)
    assert len(batches) == sampler.steps_per_epoch == len(set(groups)) // batch_size
    shown = [groups[row] for batch in batches for row in batch]
    assert len(shown) == len(set(shown)) == len(batches) * batch_size
    again = Sampler(np.array(groups), batch_size, seed).epoch(epoch)
    assert all((one == other).all() for one, other in zip(batches, again, strict=True))


def test_every_row_of_a_group_is_drawn_some_time() -> None:
    sampler = Sampler(np.array([0, 0, 0, 1]), 2, 0)
    assert {int(row) for epoch in range(40) for batch in sampler.epoch(epoch) for row in batch} == {0, 1, 2, 3}


def test_epochs_and_seeds_differ() -> None:
    rows = np.arange(50)
    orders = {tuple(Sampler(rows, 50, seed).epoch(epoch)[0]) for seed in (0, 1) for epoch in (0, 1)}
    assert len(orders) == 4


def test_too_few_rows_are_named() -> None:
    with pytest.raises(InputError, match="paraclip visits 2 rows in an epoch, fewer than batch_size 3"):
        Sampler(np.array([0, 0, 1]), 3, 0).check("paraclip")


IMAGES = np.array([4, 4, 4, 9, 9, 4])
PAIRS = np.array([4, 5, 5, 9, 9, 4])
OTHERS = np.array([1, 1, 2, 1, 1, 2])


def _visits(groups: np.ndarray) -> list[int]:  # type: ignore[type-arg]
    return sorted(int(row) for batch in Sampler(groups, 1, 0).epoch(0) for row in batch)


def test_an_epoch_visits_every_image_once() -> None:
    assert sorted(IMAGES[_visits(groups_of("images", IMAGES, [PAIRS, OTHERS]))]) == [4, 9]


def test_an_epoch_visits_every_pair_once_by_one_of_its_samples() -> None:
    assert sorted(PAIRS[_visits(groups_of("pairs", IMAGES, [PAIRS]))]) == [4, 5, 9]


def test_an_epoch_visits_every_row_once() -> None:
    assert _visits(groups_of("rows", IMAGES, [PAIRS])) == [0, 1, 2, 3, 4, 5]


def test_an_epoch_visits_every_ordered_pair_of_images_once() -> None:
    rows = _visits(groups_of("pairs", IMAGES, [PAIRS, OTHERS]))
    assert sorted(zip(PAIRS[rows], OTHERS[rows], strict=True)) == [(4, 1), (4, 2), (5, 1), (5, 2), (9, 1)]


@given(st.permutations(range(30)), st.integers(0, 5))
def test_one_caption_of_each_image_gives_the_same_batches_either_way(places: list[int], epoch: int) -> None:
    images = np.array(places)
    both = [Sampler(groups_of(visits, images, [images]), 7, 1).epoch(epoch) for visits in ("images", "pairs")]
    assert all((one == other).all() for one, other in zip(*both, strict=True))
