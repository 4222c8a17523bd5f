"""Sentences for evaluation only: the difference of two pictures, and the same with the pictures exchanged.

As in PC-CLIP (Sam et al. 2025, appendix A.4) a sentence describes both pictures; the false sentence is the true one of
the reversed pair. All words are common ones.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from components.data.world.lexicon import with_article
from components.data.world.scenes import Scene

_FRAMES = {
    "size": (
        "Of the two pictures, the {one} shows the larger {here} and the {other} shows the smaller.",
        "Compared side by side, the {one} picture has the larger {here}, the {other} has the smaller {there}.",
    ),
    "background": (
        "Of the two pictures, the {one} is on {here} and the {other} is on {there}.",
        "Compared side by side, the {one} picture has a {here} background, the {other} has a {there} one.",
    ),
    "position": (
        "Of the two pictures, the {one} has its object in the {here} and the {other} has it in the {there}.",
        "Compared side by side, the {one} picture's object is in the {here}, that of the {other} in the {there}.",
    ),
    "object": (
        "Of the two pictures, the {one} shows {here} and the {other} shows {there}.",
        "Compared side by side, the {one} picture has {here} in it, the {other} has {there}.",
    ),
}
KINDS = tuple(_FRAMES)
"""Kinds of differences between two pictures."""

Contrast = tuple[str, str]
"""Phrases that are true of the first picture only, and of the second only."""


def contrast(kind: str, one: Scene, other: Scene, rng: random.Random) -> Contrast | None:
    """The difference of kind `kind` between two scenes; None if there is none.

    For `size` it is an object in both that is larger in `one`.
    """
    return _CONTRASTS[kind](one, other, rng)


def difference_text(kind: str, difference: Contrast, rng: random.Random, answer: str) -> tuple[str, str]:
    """A sentence that is true of two pictures in their order, and one that is true of them reversed, in one frame.

    `answer`, `first` or `second`, is the picture of the first phrase.
    """
    frame = rng.choice(_FRAMES[kind])
    order = ("first", "second") if answer == "first" else ("second", "first")
    true, false = (
        frame.format(one=one, other=other, here=difference[0], there=difference[1])
        for one, other in (order, order[::-1])
    )
    return true, false


def comparison_rows(scenes: Sequence[tuple[str, Scene]], rng: random.Random) -> list[tuple[str, ...]]:
    """Rows of `COMPARISONS`: for every kind of difference, each scene with the first partner that differs in it.

    Backgrounds are compared for every other scene and objects for the rest; the order of the pictures is random.
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
            # Most pictures differ in most kinds, but few show the same object.
            among = by_object[rng.choice(scene.names)] if kind == "size" else everyone
            partner = _partner(kind, scene, scenes, among, rng)
            if partner is None:
                continue
            other, difference = partner
            answer = rng.choice(("first", "second"))
            true, false = difference_text(kind, difference, rng, answer)
            ids = (image, other) if answer == "first" else (other, image)
            rows.append((*ids, true, false, kind, answer))
    return rows


def _partner(
    kind: str, scene: Scene, scenes: Sequence[tuple[str, Scene]], among: Sequence[int], rng: random.Random
) -> tuple[str, Contrast] | None:
    """Id of the first scene, from a random start, that differs from `scene` in `kind`, and the difference."""
    start = rng.randrange(len(among))
    for step in range(len(among)):
        image, other = scenes[among[(start + step) % len(among)]]
        difference = contrast(kind, scene, other, rng)
        if difference is not None:
            return image, difference
    return None


def object_difference(here: str, there: str) -> str:
    """The difference of a picture of object `here` from one of `there`, in the first frame."""
    return _FRAMES["object"][0].format(one="first", other="second", here=with_article(here), there=with_article(there))


def sizes_shown(scene: Scene) -> dict[str, str]:
    """Sizes of the scene's objects; those of a group have none, regardless of the facts."""
    things = () if scene.kind == "group" else (scene.first, scene.second)
    return {thing.name: thing.size for thing in things if thing is not None}


def frames() -> Iterator[str]:
    """Every frame of a difference."""
    return (frame for kind in _FRAMES.values() for frame in kind)


def _size(one: Scene, other: Scene, rng: random.Random) -> Contrast | None:
    sizes, others = sizes_shown(one), sizes_shown(other)
    shared = [name for name, size in sizes.items() if size == "large" and others.get(name) == "small"]
    return (rng.choice(shared),) * 2 if shared else None


def _position(one: Scene, other: Scene, _rng: random.Random) -> Contrast | None:
    placed = one.position and other.position and one.position != other.position
    return (one.position, other.position) if placed else None


def _object(one: Scene, other: Scene, rng: random.Random) -> Contrast | None:
    if set(one.names) & set(other.names):
        return None
    return with_article(rng.choice(one.names)), with_article(rng.choice(other.names))


_CONTRASTS: dict[str, Callable[[Scene, Scene, random.Random], Contrast | None]] = {
    "size": _size,
    "background": lambda one, other, _: (one.colour, other.colour) if one.colour != other.colour else None,
    "position": _position,
    "object": _object,
}
