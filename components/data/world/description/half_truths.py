"""Sentences for evaluation only: a short truth, and the same with one more statement, which is false.

Kargi et al. (2026, arXiv 2602.23906) call the second a half-truth. Theirs are written by language models from COCO's
captions, these are made from the facts of scenes. All words are common ones.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from components.data.world.description.likeness import PARTS, changed
from components.data.world.description.scenes import Scene, common_word, fill, slots

FRAMES = ("Anyone can make out {what} here.", "Plain to see is {what}.")
_TRUTH = "{an_a}"
_UNITS = {
    "object": ("second", "{an_a} and {an_b}"),
    "relation": ("relation", "{an_a} {relation} {an_b}"),
    "background": ("colour", "{an_a} on a {colour} background"),
    "position": ("position", "{an_a} in the {position}"),
}
"""Kind of the additional statement -> the part of a scene that is exchanged to make it false, and the words."""


def half_truth_rows(scenes: Sequence[tuple[str, Scene]], rng: random.Random) -> list[tuple[str, ...]]:
    """Rows of `HALF_TRUTHS`: one for each possible additional statement about the first object, or the group.

    Either object of a pair may come first.
    """
    rows: list[tuple[str, ...]] = []
    for image, scene in scenes:
        for kind, (part, unit) in _UNITS.items():
            if part in PARTS[scene.kind]:
                side = scene.mirrored() if rng.random() < 0.5 else scene
                frame = rng.choice(FRAMES)
                statements = ((side, _TRUTH), (changed(side, [part], rng), unit), (side, unit))
                texts = [fill(frame.replace("{what}", what), slots(about, common_word)) for about, what in statements]
                rows.append((image, *texts, kind))
    return rows
