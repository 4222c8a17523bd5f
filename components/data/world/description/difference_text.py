"""Sentences that only evaluation sees: how two pictures differ, and the same with the pictures exchanged.

As in PC-CLIP (Sam et al. 2025, appendix A.4) a sentence says what is true of each picture; the false one is the true
one of the reversed pair. All words are common ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from components.data.world.description.lexicon import with_article
from components.data.world.description.scenes import Scene

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
"""What two pictures may differ in."""

Contrast = tuple[str, str]
"""What is true of the one picture and of the other only, in words."""


@dataclass(frozen=True)
class DifferenceText:
    """A sentence that is true of two pictures in their order, and one that is true of them reversed."""

    true: str
    false: str


def contrast(kind: str, one: Scene, other: Scene, rng: random.Random) -> Contrast | None:
    """What tells `one` from `other` in the respect `kind`; None where nothing does.

    In `size` it is an object that both show, and which is larger in `one`.
    """
    return _CONTRASTS[kind](one, other, rng)


def difference_text(kind: str, found: Contrast, rng: random.Random, answer: str) -> DifferenceText:
    """Write both sentences in the same frame; `answer` says which picture `found` begins with, `first` or `second`."""
    frame = rng.choice(_FRAMES[kind])
    order = ("first", "second") if answer == "first" else ("second", "first")
    true, false = (
        frame.format(one=one, other=other, here=found[0], there=found[1]) for one, other in (order, order[::-1])
    )
    return DifferenceText(true, false)


def object_difference(here: str, there: str) -> str:
    """How a picture of the thing `here` differs from one of `there`, in the first frame of such sentences."""
    return _FRAMES["object"][0].format(one="first", other="second", here=with_article(here), there=with_article(there))


def frames() -> Iterator[str]:
    """Every frame of a difference."""
    return (frame for kind in _FRAMES.values() for frame in kind)


def _sizes(scene: Scene) -> dict[str, str]:
    """Sizes of the scene's objects; those of a group have none, whatever the facts say of the drawing."""
    things = () if scene.kind == "group" else (scene.first, scene.second)
    return {thing.name: thing.size for thing in things if thing is not None}


def _size(one: Scene, other: Scene, rng: random.Random) -> Contrast | None:
    sizes, others = _sizes(one), _sizes(other)
    shared = [name for name, size in sizes.items() if size == "large" and others.get(name) == "small"]
    return (rng.choice(shared),) * 2 if shared else None


def _background(one: Scene, other: Scene, _rng: random.Random) -> Contrast | None:
    return (one.colour, other.colour) if one.colour != other.colour else None


def _position(one: Scene, other: Scene, _rng: random.Random) -> Contrast | None:
    placed = one.position and other.position and one.position != other.position
    return (one.position, other.position) if placed else None


def _object(one: Scene, other: Scene, rng: random.Random) -> Contrast | None:
    if set(one.names) & set(other.names):
        return None
    return with_article(rng.choice(one.names)), with_article(rng.choice(other.names))


_CONTRASTS: dict[str, Callable[[Scene, Scene, random.Random], Contrast | None]] = {
    "size": _size, "background": _background, "position": _position, "object": _object,
}  # fmt: skip
