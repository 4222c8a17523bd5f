"""Sentences that only evaluation sees: a short truth, and the same with one more thing said, which is false.

Kargi et al. (2026, arXiv 2602.23906) call the second a half-truth, and let language models write theirs of COCO's
captions; here the facts of scenes give all of them. All words are common ones.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from components.data.world.description.likeness import PARTS, changed
from components.data.world.description.phrases import common_word, fill, slots
from components.data.world.description.scenes import Scene

FRAMES = ("Anyone can make out {what} here.", "Plain to see is {what}.")
_TRUTH = "{an_a}"
_UNITS = {
    "object": ("second", "{an_a} and {an_b}"),
    "relation": ("relation", "{an_a} {relation} {an_b}"),
    "background": ("colour", "{an_a} on a {colour} background"),
    "position": ("position", "{an_a} in the {position}"),
}
"""By what is said in addition: the part of a scene that is exchanged to make it false, and the words."""


def half_truth_rows(scenes: Sequence[tuple[str, Scene]], rng: random.Random) -> list[tuple[str, ...]]:
    """Rows of `HALF_TRUTHS`: one for each thing that can be said in addition to the first object, or the group.

    Of a pair either object may come first.
    """
    rows: list[tuple[str, ...]] = []
    for image, scene in scenes:
        for kind, (part, unit) in _UNITS.items():
            if part in PARTS[scene.kind]:
                told = scene.mirrored() if rng.random() < 0.5 else scene
                frame = rng.choice(FRAMES)
                said = ((told, _TRUTH), (changed(told, [part], rng), unit), (told, unit))
                texts = [fill(frame.replace("{what}", what), slots(about, common_word)) for about, what in said]
                rows.append((image, *texts, kind))
    return rows
