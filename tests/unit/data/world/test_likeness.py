"""How many facts two scenes share, reckoned by hand, and pairs of all degrees."""

from __future__ import annotations

import random

import pytest

from components.data.world.description.scenes import Scene, Thing, draw_scenes
from components.data.world.likeness import shared_facts, similarity_rows

CAT_LEFT_OF_DOG = Scene("pair", "red", Thing("cat", "small"), Thing("dog", "large"), relation="left")
DOG_RIGHT_OF_CAT = Scene("pair", "red", Thing("dog", "large"), Thing("cat", "small"), relation="right")
CAT_RIGHT_OF_DOG = Scene("pair", "red", Thing("cat", "small"), Thing("dog", "large"), relation="right")
LARGE_CAT = Scene("single", "red", Thing("cat", "large"), position="center")
TWO_CATS = Scene("group", "blue", Thing("cat", "small"), count="two")


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        (CAT_LEFT_OF_DOG, DOG_RIGHT_OF_CAT, 1),
        # Background, two objects and two sizes are the same, the relation is not: five of seven.
        (CAT_LEFT_OF_DOG, CAT_RIGHT_OF_DOG, 5 / 7),
        # Background and cat; of the others six and two.
        (CAT_LEFT_OF_DOG, LARGE_CAT, 2 / 8),
        # The cat alone; a group has no size.
        (LARGE_CAT, TWO_CATS, 1 / 6),
    ],
)
def test_facts_are_shared(one: Scene, other: Scene, share: float) -> None:
    assert shared_facts(one, other) == shared_facts(other, one) == pytest.approx(share)


def test_pairs_are_of_all_degrees_and_the_same_for_the_same_seed() -> None:
    scenes = [scene for split, scene in draw_scenes(0, {"train": 1, "val": 1, "test": 200}) if split == "test"]
    rows = similarity_rows(scenes, random.Random(0))
    assert rows == similarity_rows(scenes, random.Random(0))
    assert [share for _, _, share in rows[::4]] == [1.0] * 50
    assert all(0.3 < share < 1 for _, _, share in rows[1::4])
    assert sum(share for _, _, share in rows[2::4]) < sum(share for _, _, share in rows[1::4])
    assert sum(share for _, _, share in rows[3::4]) / 50 < 0.2
    assert all(query != paraphrase for query, paraphrase, _ in rows)
