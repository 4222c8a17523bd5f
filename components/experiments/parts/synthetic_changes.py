"""Pairs of synthetic scenes that differ in exactly one fact, with sentences about the difference.

The counterpart of Spot-the-Difference without files. The benchmark itself trains on such sentences, so these sentence
patterns may also occur in the encoders' training data. The test pairs may not: no training scene has their facts, and
half of their pairs of objects occur together in none.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from components.data.world.description.lexicon import Concept, load_lexicon, plural, with_article
from components.data.world.description.scenes import COUNTS, INVERSE, POSITIONS, SIZES, Scene, Split, Thing, draw_scenes
from components.data.world.drawing import draw
from components.experiments.parts.captioned_pairs import PairSets, PicturePair
from components.test_sets.pictures import picture_bytes

COUNT_OF: dict[Split, int] = {"train": 800, "val": 100, "test": 200}
"""Pairs of each split."""

FRAMES = {
    "background": (
        "the background changed from {old} to {new}",
        "everything behind is {new} now instead of {old}",
        "the {old} background has turned {new}",
    ),
    "object": (
        "the {old} was replaced by {a_new}",
        "there is {a_new} now where the {old} was",
        "the {old} is gone and {a_new} has taken its place",
    ),
    "size": (
        "the {thing} became {new}",
        "the {thing} is {new} now and was {old} before",
        "the {old} {thing} has turned into a {new} one",
    ),
    "position": (
        "the {thing} moved from the {old} to the {new}",
        "the {thing} is in the {new} now and not in the {old}",
        "the {thing} has left the {old} for the {new}",
    ),
    "relation": (
        "the {thing} is {new} the {other} now instead of {old} it",
        "the {thing} moved from {old} the {other} to {new} it",
        "the {thing} and the {other} changed places so the {thing} is {new} the {other}",
    ),
    "count": (
        "there are {new} {things} now instead of {old}",
        "the number of {things} changed from {old} to {new}",
        "the {old} {things} have become {new}",
    ),
}
"""Kind of change -> its sentences; a pair has all of its kind."""


@dataclass(frozen=True)
class Change:
    """A scene, the same with one fact changed, which is `kind`, and the sentences about it in common words."""

    kind: str
    before: Scene
    after: Scene
    sentences: tuple[str, ...]


def synthetic_pairs(seed: int, counts: dict[Split, int] | None = None) -> PairSets:
    """The splits, each pair with drawn pictures; deterministic for a seed of scenes and changes."""
    pairs: dict[Split, list[PicturePair]] = {"train": [], "val": [], "test": []}
    rng = random.Random(f"changes-{seed}")
    for number, (split, scene) in enumerate(draw_scenes(seed, counts or COUNT_OF)):
        change = change_of(scene, rng)
        # One seed for both pictures keeps unchanged things in place, as far as there is room.
        before, after = (draw(one, f"{seed}-{number}") for one in (change.before, change.after))
        pictures = [picture_bytes(f"{split}-{number}-{which}", png) for which, png in (("a", before), ("b", after))]
        pairs[split].append(PicturePair(pictures[0], pictures[1], change.sentences))
    return PairSets(pairs["train"], pairs["val"], pairs["test"])


def change_of(scene: Scene, rng: random.Random) -> Change:
    """Change one fact of `scene`; the fact and its new value are random."""
    if scene.second is not None and rng.random() < 0.5:
        scene = scene.mirrored()
    kind = rng.choice(KINDS_OF[scene.kind])
    after, words = _CHANGES[kind](scene, rng)
    return Change(kind, scene, after, tuple(frame.format(**words) for frame in FRAMES[kind]))


_Changed = tuple[Scene, dict[str, str]]


def _word(name: str) -> str:
    concept: Concept = load_lexicon().concept(name)
    return concept.word("common")


def _other(choices: tuple[str, ...], taken: tuple[str, ...], rng: random.Random) -> str:
    return rng.choice([name for name in choices if name not in taken])


def _background(scene: Scene, rng: random.Random) -> _Changed:
    colour = _other(tuple(load_lexicon().colours), (scene.colour,), rng)
    return replace(scene, colour=colour), {"old": _word(scene.colour), "new": _word(colour)}


def _object(scene: Scene, rng: random.Random) -> _Changed:
    name = _other(tuple(load_lexicon().objects), scene.names, rng)
    after = replace(scene, first=Thing(name, scene.first.size))
    return after, {"old": _word(scene.first.name), "a_new": with_article(_word(name))}


def _size(scene: Scene, rng: random.Random) -> _Changed:
    del rng
    size = next(size for size in SIZES if size != scene.first.size)
    words = {"thing": _word(scene.first.name), "old": _word(scene.first.size), "new": _word(size)}
    return replace(scene, first=Thing(scene.first.name, size)), words


def _position(scene: Scene, rng: random.Random) -> _Changed:
    position = _other(POSITIONS, (scene.position,), rng)
    return replace(scene, position=position), {
        "thing": _word(scene.first.name), "old": scene.position, "new": position,
    }  # fmt: skip


def _relation(scene: Scene, rng: random.Random) -> _Changed:
    del rng
    assert scene.second is not None
    relation = INVERSE[scene.relation]
    words = {"thing": _word(scene.first.name), "other": _word(scene.second.name)}
    return replace(scene, relation=relation), words | {"old": _word(scene.relation), "new": _word(relation)}


def _count(scene: Scene, rng: random.Random) -> _Changed:
    count = _other(COUNTS, (scene.count,), rng)
    words = {"things": plural(_word(scene.first.name)), "old": _word(scene.count), "new": _word(count)}
    return replace(scene, count=count), words


_CHANGES: dict[str, Callable[[Scene, random.Random], _Changed]] = {
    "background": _background, "object": _object, "size": _size,
    "position": _position, "relation": _relation, "count": _count,
}  # fmt: skip
KINDS_OF = {
    "pair": ("background", "object", "size", "relation"),
    "single": ("background", "object", "size", "position"),
    "group": ("background", "count"),
}
"""Possible changes in each kind of scene; other objects in a group would be several changes."""
