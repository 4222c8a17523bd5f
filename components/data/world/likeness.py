"""Sentences about scenes of which some facts are exchanged: similar sentences with the share of facts, half-truths."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from more_itertools import powerset

from components.data.world.evaluation_text import evaluation_text, plain_query
from components.data.world.lexicon import TIERS, Tier, load_lexicon
from components.data.world.scenes import (
    COUNTS,
    POSITIONS,
    RELATIONS,
    SIZES,
    Kind,
    Scene,
    Thing,
    common_word,
    fill,
    slots,
)

PARTS: Mapping[Kind, Sequence[str]] = {
    "pair": ("colour", "first", "first size", "second", "second size", "relation"),
    "single": ("colour", "first", "first size", "position"),
    "group": ("colour", "first", "count"),
}
"""The parts of each kind of scene that sentences describe and `changed` can exchange."""
_REGISTERS = ((False, False), (False, True), (True, False), (True, True))
"""Whether each sentence of a row is in a paraphrase's words."""


def likeness_rows(scenes: Sequence[Scene], rng: random.Random) -> list[tuple[str, str, float, str]]:
    """A row of `TEXT_PAIRS` for each scene: a sentence about it, and one about the scene with some facts changed.

    All degrees that a kind of scene allows are drawn equally often. Half of all sentences are in a paraphrase's words,
    with all tiers in rotation.
    """
    rows: list[tuple[str, str, float, str]] = []
    for position, scene in enumerate(scenes):
        by_degree = defaultdict(list)
        for parts in powerset(PARTS[scene.kind]):
            other = changed(scene, parts, rng)
            by_degree[shared_facts(scene, other)].append(other)
        degree = rng.choice(sorted(by_degree))
        wanted = TIERS[position // len(_REGISTERS) % len(TIERS)]
        both = zip((scene, rng.choice(by_degree[degree])), _REGISTERS[position % len(_REGISTERS)], strict=True)
        sentences = [_sentence(other, wanted if paraphrased else None, rng) for other, paraphrased in both]
        tier = max((tier for _, tier in sentences), key=TIERS.index)
        rows.append((sentences[0][0], sentences[1][0], degree, tier))
    return rows


def facts(scene: Scene) -> frozenset[tuple[str, ...]]:
    """The facts in sentences about a scene; size, place and count are facts about their object."""
    scene = scene.canonical()
    common = {("background", scene.colour), *(("object", name) for name in scene.names)}
    if scene.kind == "group":
        return frozenset(common | {("count", scene.first.name, scene.count)})
    things = [scene.first] if scene.second is None else [scene.first, scene.second]
    place = scene.position if scene.second is None else f"{scene.relation} {scene.second.name}"
    return frozenset(
        common | {("size", thing.name, thing.size) for thing in things} | {("place", scene.first.name, place)}
    )


def shared_facts(one: Scene, other: Scene) -> float:
    """Number of shared facts over all facts: 1 for equal scenes, 0 for scenes that share nothing."""
    mine, theirs = facts(one), facts(other)
    return len(mine & theirs) / len(mine | theirs)


def changed(scene: Scene, parts: Collection[str], rng: random.Random) -> Scene:
    """The scene with another value for each of `parts`, named as in `PARTS`; `first` and `second` are its objects."""
    lexicon = load_lexicon()
    absent = [name for name in rng.sample(list(lexicon.objects), 4) if name not in scene.names]

    def other(part: str, now: str, values: Iterable[str]) -> str:
        return rng.choice([value for value in values if value != now]) if part in parts else now

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


def _sentence(scene: Scene, paraphrased: Tier | None, rng: random.Random) -> tuple[str, Tier]:
    """A sentence with the tier of its hardest word."""
    if paraphrased is None:
        return plain_query(scene, rng), "common"
    text = evaluation_text(scene, rng, paraphrased)
    return text.paraphrase, text.tier


FRAMES = ("Anyone can make out {what} here.", "Plain to see is {what}.")
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
                statements = ((side, "{an_a}"), (changed(side, [part], rng), unit), (side, unit))
                texts = [fill(frame.replace("{what}", what), slots(about, common_word)) for about, what in statements]
                rows.append((image, *texts, kind))
    return rows
