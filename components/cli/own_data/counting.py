"""The counts of a profile: how many images test and validate, and how many captions surely train."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice

from components.core.settings import Counts
from components.core.tables.files import content_hash
from components.data.described import Described
from components.data.source import HELD_OUT_FIRST, drawing_order
from components.evaluation.scoring.intervals import detectable

_HELD_OUT = 5000
"""Maximum number of test and of validation images without published splits; a tenth of a small folder each."""
_AGREEMENT_SPREAD, _RECALL_SPREAD = 0.2, 0.33
"""Standard deviation of two related encoders' difference per query: of AO@10 and of recall@5 (docs/statistics.md)."""


def least_gain(pictures: int) -> float:
    """The least gain of AO@10, in points, that so many test pictures show with a power of 80%."""
    return 100 * detectable(max(1, pictures), _AGREEMENT_SPREAD)


def allowed_loss(pictures: int) -> int:
    """The least loss of recall@5, in whole points, that so many test pictures exclude for an unharmed encoder."""
    return math.ceil(100 * detectable(max(1, pictures), _RECALL_SPREAD))


def counts_of(described: Described, seed: int) -> Counts:
    """The images of published splits, and a tenth of the others for each split that is not published.

    Which images are drawn depends on their bytes, so those with the most captions are counted as drawn; products are
    drawn in an order that is known.
    """
    groups = _one_split_each(described.groups)
    images, captions = Counter[str](), Counter[str]()
    for (split, _, count), number in groups.items():
        images[split] += number
        captions[split] += count * number
    drawn = min(_HELD_OUT, max(1, images["train"] // 10))
    held_out = {split: images[split] or drawn for split in ("test", "val")}
    room = sum(drawn for split in held_out if not images[split])
    single, products = Counter[int](), dict[str, list[int]]()
    for (split, item, count), number in groups.items():
        if split != "train":
            continue
        if not item:
            single[count] += number
            continue
        of = products.setdefault(item, [0, 0])
        of[0], of[1] = of[0] + number, of[1] + count * number
    order = sorted(products, key=lambda item: drawing_order(seed, content_hash(item)))
    lost = _most_lost(single, [(products[item][0], products[item][1]) for item in order], room) if room else 0
    return Counts(train=max(1, captions["train"] - lost), **held_out)


def _one_split_each(groups: Mapping[tuple[str, str, int], int]) -> dict[tuple[str, str, int], int]:
    """The images, without those of products that a split before theirs tests or validates."""
    split_of: dict[str, str] = {}
    for split, item, _ in sorted(groups, key=lambda group: HELD_OUT_FIRST.index(group[0])):
        split_of.setdefault(item, split)
    return {group: number for group, number in groups.items() if not group[1] or split_of[group[1]] == group[0]}


def _most_lost(single: Counter[int], products: Iterable[tuple[int, int]], room: int) -> int:
    """The most captions of images that are drawn, or are left out as the rest of a drawn product.

    Args:
        single: number of captions -> images without a product that have as many.
        products: images and captions of each product, in the order of drawing.
        room: of the splits together.
    """
    lost = _largest(single, room)
    images = captions = most = 0
    for number, (count, texts) in enumerate(islice(products, room), 1):
        images, captions, most = images + count, captions + texts, max(most, count)
        # The last product of either split may have more images than it has room for.
        used = max(number, images - (most - 1) - (count - 1))
        if used <= room:
            lost = max(lost, captions + _largest(single, room - used))
    return lost


def _largest(single: Counter[int], images: int) -> int:
    """The captions of so many images with the most captions."""
    found = 0
    for captions, number in sorted(single.items(), reverse=True):
        found += captions * min(number, images)
        images -= min(number, images)
    return found
