"""Which pictures of the test split are compared, and in what respect."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

from components.data.world.description.difference_text import KINDS, Contrast, contrast, difference_text
from components.data.world.description.scenes import Scene


def comparison_rows(scenes: Sequence[tuple[str, Scene]], rng: random.Random) -> list[tuple[str, ...]]:
    """Rows of `COMPARISONS`: in every respect, each scene with the first partner that differs from it, if any does.

    Backgrounds are compared of every other scene and objects of the rest; which picture stands first is drawn.
    """
    by_object: dict[str, list[int]] = defaultdict(list)
    for position, (_, scene) in enumerate(scenes):
        for name in scene.names:
            by_object[name].append(position)
    everyone = list(range(len(scenes)))
    rows: list[tuple[str, ...]] = []
    for position, (image, scene) in enumerate(scenes):
        for kind in KINDS:
            if kind == ("background", "object")[position % 2]:
                continue
            # Most pictures differ in most respects, but few show the same thing.
            among = by_object[rng.choice(scene.names)] if kind == "size" else everyone
            found = _partner(kind, scene, scenes, among, rng)
            if found is None:
                continue
            other, difference = found
            answer = rng.choice(("first", "second"))
            text = difference_text(kind, difference, rng, answer)
            ids = (image, other) if answer == "first" else (other, image)
            rows.append((*ids, text.true, text.false, kind, answer))
    return rows


def _partner(
    kind: str, scene: Scene, scenes: Sequence[tuple[str, Scene]], among: Sequence[int], rng: random.Random
) -> tuple[str, Contrast] | None:
    """Id of the first scene from a drawn place on that differs from `scene` in the respect `kind`, and how."""
    start = rng.randrange(len(among))
    for step in range(len(among)):
        image, other = scenes[among[(start + step) % len(among)]]
        difference = contrast(kind, scene, other, rng)
        if difference is not None:
            return image, difference
    return None
