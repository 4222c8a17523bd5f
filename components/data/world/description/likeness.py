"""Pairs of sentences that say partly the same, with the share: semantic textual similarity of known facts."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations

from components.data.world.description.evaluation_text import evaluation_text, plain_query
from components.data.world.description.lexicon import TIERS, Tier, load_lexicon
from components.data.world.description.scenes import COUNTS, POSITIONS, RELATIONS, SIZES, Kind, Scene, Thing

PARTS: Mapping[Kind, Sequence[str]] = {
    "pair": ("colour", "first", "first size", "second", "second size", "relation"),
    "single": ("colour", "first", "first size", "position"),
    "group": ("colour", "first", "count"),
}
"""What sentences say of each kind of scene, and what `changed` can exchange."""
_REGISTERS = ((False, False), (False, True), (True, False), (True, True))
"""Whether either sentence of a row is in a paraphrase's words."""


def likeness_rows(scenes: Sequence[Scene], rng: random.Random) -> list[tuple[str, str, float, str]]:
    """A row of `TEXT_PAIRS` for each scene: a sentence about it, and one about the same with some of its facts changed.

    Every degree that a kind of scene allows is drawn as often as every other. Half of all sentences are in a
    paraphrase's words, whose tiers take turns.
    """
    rows: list[tuple[str, str, float, str]] = []
    for position, scene in enumerate(scenes):
        by_degree = defaultdict(list)
        for parts in _some_of(PARTS[scene.kind]):
            other = changed(scene, parts, rng)
            by_degree[shared_facts(scene, other)].append(other)
        degree = rng.choice(sorted(by_degree))
        wanted = TIERS[position // len(_REGISTERS) % len(TIERS)]
        both = zip((scene, rng.choice(by_degree[degree])), _REGISTERS[position % len(_REGISTERS)], strict=True)
        told = [_sentence(one, wanted if paraphrased else None, rng) for one, paraphrased in both]
        rows.append((told[0][0], told[1][0], degree, max((tier for _, tier in told), key=TIERS.index)))
    return rows


def facts(scene: Scene) -> frozenset[tuple[str, ...]]:
    """What sentences about a scene say; size, place and count are facts about their object and none without it."""
    scene = scene.canonical()
    told = {("background", scene.colour), *(("object", name) for name in scene.names)}
    if scene.kind == "group":
        return frozenset(told | {("count", scene.first.name, scene.count)})
    things = [scene.first] if scene.second is None else [scene.first, scene.second]
    place = scene.position if scene.second is None else f"{scene.relation} {scene.second.name}"
    return frozenset(
        told | {("size", thing.name, thing.size) for thing in things} | {("place", scene.first.name, place)}
    )


def shared_facts(one: Scene, other: Scene) -> float:
    """Facts of both scenes over facts of either: 1 where the scenes are the same, 0 where they share nothing."""
    mine, theirs = facts(one), facts(other)
    return len(mine & theirs) / len(mine | theirs)


def changed(scene: Scene, parts: Collection[str], rng: random.Random) -> Scene:
    """The scene with another value for each of `parts`, named as in `PARTS`; `first` and `second` are its objects."""
    lexicon = load_lexicon()
    absent = [name for name in rng.sample(list(lexicon.objects), 4) if name not in scene.names]

    def other(part: str, now: str, known: Iterable[str]) -> str:
        return rng.choice([value for value in known if value != now]) if part in parts else now

    def thing(part: str, now: Thing) -> Thing:
        return Thing(absent.pop() if part in parts else now.name, other(f"{part} size", now.size, SIZES))

    return replace(
        scene,
        colour=other("colour", scene.colour, lexicon.colours),
        first=thing("first", scene.first),
        second=thing("second", scene.second) if scene.second else None,
        relation=other("relation", scene.relation, RELATIONS),
        position=other("position", scene.position, POSITIONS),
        count=other("count", scene.count, COUNTS),
    )


def _some_of(parts: Sequence[str]) -> Iterable[tuple[str, ...]]:
    return chain.from_iterable(combinations(parts, count) for count in range(len(parts) + 1))


def _sentence(scene: Scene, paraphrased: Tier | None, rng: random.Random) -> tuple[str, Tier]:
    """A sentence with the tier of its hardest word."""
    if paraphrased is None:
        return plain_query(scene, rng), "common"
    text = evaluation_text(scene, rng, paraphrased)
    return text.paraphrase, text.tier
