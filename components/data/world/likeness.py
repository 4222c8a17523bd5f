"""Two sentences about scenes that share more or fewer facts, and how many: similarity of texts without a rater."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from components.data.world.description.evaluation_text import evaluation_text, plain_query
from components.data.world.description.lexicon import TIERS, load_lexicon
from components.data.world.description.scenes import COUNTS, INVERSE, POSITIONS, SIZES, Scene, Thing

CHANGES = (0, 1, 2, None)
"""How many facts of the second scene are other ones, in turn; None takes another scene of the test split."""


def similarity_rows(scenes: Sequence[Scene], rng: random.Random) -> list[tuple[str, str, float]]:
    """Rows of `TEXT_SIMILARITIES`, one for each scene: a plain query, and a paraphrase of a scene like it."""
    rows = []
    for position, scene in enumerate(scenes):
        changes = CHANGES[position % len(CHANGES)]
        other = rng.choice(scenes) if changes is None else _changed(scene, changes, rng)
        told = evaluation_text(other, rng, TIERS[position // len(CHANGES) % len(TIERS)]).paraphrase
        rows.append((plain_query(scene, rng), told, shared_facts(scene, other)))
    return rows


def shared_facts(one: Scene, other: Scene) -> float:
    """The facts that two scenes share, of all that either has (Jaccard), in [0, 1]."""
    first, second = _facts(one), _facts(other)
    return len(first & second) / len(first | second)


def _facts(scene: Scene) -> frozenset[tuple[str, ...]]:
    """Background, each object, each object's size, and where they are or how many."""
    side = scene.canonical()
    things = [thing for thing in (side.first, side.second) if thing is not None]
    facts: set[tuple[str, ...]] = {("background", side.colour), *(("object", thing.name) for thing in things)}
    if side.kind == "group":
        return frozenset(facts | {("count", side.count)})
    facts |= {("size", thing.name, thing.size) for thing in things}
    where = ("relation", side.relation, *side.names) if side.kind == "pair" else ("position", side.position)
    return frozenset(facts | {where})


def _changed(scene: Scene, changes: int, rng: random.Random) -> Scene:
    """The scene with so many of its facts, drawn at random, replaced by other ones."""
    kinds = ["background", "object", "place"] + (["size"] if scene.kind != "group" else [])
    for kind in rng.sample(kinds, changes):
        if kind == "background":
            scene = replace(scene, colour=_other(list(load_lexicon().colours), [scene.colour], rng))
        elif kind == "object":
            name = _other(list(load_lexicon().objects), scene.names, rng)
            scene = replace(scene, first=Thing(name, scene.first.size))
        elif kind == "size":
            scene = replace(scene, first=Thing(scene.first.name, _other(SIZES, [scene.first.size], rng)))
        else:
            scene = _elsewhere(scene, rng)
    return scene


def _elsewhere(scene: Scene, rng: random.Random) -> Scene:
    """The same objects in another place, or in another number."""
    if scene.kind == "pair":
        return replace(scene, relation=INVERSE[scene.relation])
    if scene.kind == "single":
        return replace(scene, position=_other(POSITIONS, [scene.position], rng))
    return replace(scene, count=_other(COUNTS, [scene.count], rng))


def _other(known: Sequence[str], but: Sequence[str], rng: random.Random) -> str:
    return rng.choice([name for name in known if name not in but])
