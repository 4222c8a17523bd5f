"""How the images of a listing become splits."""

from __future__ import annotations

from pathlib import Path

from components.core.settings import Counts
from components.data.listing import Line, Listing, share
from components.data.source import Seen

NAMES = [f"{number}.png" for number in range(20)]
SEEN = {name: Seen(name, name, None, None, image_id=name, key=b"") for name in NAMES}
COUNTS = Counts(train=10, val=2, test=2)


def _shared(seed: int, split: str = "") -> dict[str, list[str]]:
    """Split -> images in their order, of a listing that has all of them in the published `split`."""
    lines = [Line(f"line {name}", name, f"picture {name}", split=split) for name in NAMES]
    shared = share(Listing(Path("captions.tsv"), Path(), lines), SEEN, COUNTS, seed)
    return {name: [image[0].image for image in images] for name, images in shared.items()}


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
