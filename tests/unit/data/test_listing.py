"""How the images of a listing become splits."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core.settings import Counts
from components.data.listed_images import share
from components.data.source import Pair, Sample

NAMES = [f"{number}.png" for number in range(20)]
COUNTS = Counts(train=10, val=2, test=2)


def _shared(seed: int, split: str = "", names: list[str] = NAMES) -> dict[str, list[str]]:
    """Split -> images in their order, of a listing that has all of them in the published `split`."""
    grouped = [[Pair(split, Sample(name=name, image_id=name), f"picture {name}")] for name in names]
    shared = share(Path("captions.tsv"), grouped, [], COUNTS, seed)
    return {name: [image[0].image.name for image in images] for name, images in shared.items()}


def test_images_come_in_an_order_that_the_seed_gives() -> None:
    """The first captions that tasks ask about are a random sample, as PC-CLIP's 1,000 images are (section 4.1)."""
    for split in ("", "train"):
        found = [_shared(seed, split) for seed in range(5)]
        assert found == [_shared(seed, split) for seed in range(5)]
        for shared in found:
            in_file = [NAMES.index(name) for images in shared.values() for name in images]
            assert sorted(in_file) == list(range(20))
            train = [NAMES.index(name) for name in shared["train"]]
            assert train != sorted(train)
        assert len({tuple(shared["train"]) for shared in found}) == 5


@pytest.mark.parametrize("split", ["", "train"])
def test_one_image_more_moves_none_from_training_to_testing(split: str) -> None:
    for seed in range(20):
        before, after = _shared(seed, split, NAMES[1:]), _shared(seed, split)
        assert not set(after["test"]) & set(before["train"])
        assert len(set(after["test"]) & set(before["test"])) >= COUNTS.test - 1
        assert len(set(before["train"]) - set(after["train"])) == 0
