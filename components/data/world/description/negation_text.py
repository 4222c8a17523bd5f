"""Sentences for evaluation only: a plain query, and the same made false by "no", "not" or "without".

As in CC-Neg (Singh et al. 2024) the negation is minimal. All words are common ones, so only the cue differs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from components.data.world.description.evaluation_text import QUERIES
from components.data.world.description.lexicon import load_lexicon, plural
from components.data.world.description.scenes import Scene, Thing, common_word, fill, slots

CUES = ("no", "not", "without", "not_but")
"""Cues of negations; `not_but` names an absent object in place of the one that is shown."""

_NEGATIONS: dict[str, tuple[dict[str, str], ...]] = {
    "pair": (
        {
            "no": "There is no {bare} {relation} {an_b} and the background is {colour}.",
            "not": "There is not a single {bare} {relation} {an_b} and the background is {colour}.",
            "without": "There is {an_b} without {an_a} {relation} it and the background is {colour}.",
            "not_but": "There is not {an_a} but {an_absent} {relation} {an_b} and the background is {colour}.",
        },
        {
            "no": "This shows no {bare} {relation} {an_b}, with a plain {colour} background.",
            "not": "This does not show {an_a} {relation} {an_b}, with a plain {colour} background.",
            "without": "This shows {an_b} without {an_a} {relation} it, with a plain {colour} background.",
            "not_but": "This shows not {an_a} but {an_absent} {relation} {an_b}, with a plain {colour} background.",
        },
        {
            "no": "On {colour}, no {bare} is {relation} {an_b}.",
            "not": "On {colour}, not a single {bare} is {relation} {an_b}.",
            "without": "On {colour}, {an_b} is without {an_a} {relation} it.",
            "not_but": "On {colour}, not {an_a} but {an_absent} is {relation} {an_b}.",
        },
    ),
    "single": (
        {
            "no": "There is no {bare} in the {position} and the background is {colour}.",
            "not": "There is not a single {bare} in the {position} and the background is {colour}.",
            "without": "There is a {position} without {an_a} and the background is {colour}.",
            "not_but": "There is not {an_a} but {an_absent} in the {position} and the background is {colour}.",
        },
        {
            "no": "This shows no {bare} in the {position}, with a plain {colour} background.",
            "not": "This does not show {an_a} in the {position}, with a plain {colour} background.",
            "without": "This shows the {position} without {an_a}, with a plain {colour} background.",
            "not_but": "This shows not {an_a} but {an_absent} in the {position}, with a plain {colour} background.",
        },
    ),
    "group": (
        {
            "no": "There are no {bare} and the background is {colour}.",
            "not": "There are not any {bare} and the background is {colour}.",
            "without": "There is a scene without {bare} and the background is {colour}.",
            "not_but": "There are not {an_a} but {an_absent} and the background is {colour}.",
        },
        {
            "no": "This shows no {bare}, with a plain {colour} background.",
            "not": "This does not show any {bare}, with a plain {colour} background.",
            "without": "This shows a scene without {bare}, with a plain {colour} background.",
            "not_but": "This shows not {an_a} but {an_absent}, with a plain {colour} background.",
        },
    ),
}
"""Kind of scene -> the negations of each frame of `QUERIES`, in the same order."""


@dataclass(frozen=True)
class NegationText:
    """A true sentence about a scene and the same denied."""

    caption: str
    negation: str


def negation_text(scene: Scene, rng: random.Random, cue: str) -> NegationText:
    """Both sentences in the same frame; either object of a pair may be denied."""
    side = scene.mirrored() if rng.random() < 0.5 else scene
    absent = rng.choice([name for name in load_lexicon().objects if name not in scene.names])
    number = rng.randrange(len(QUERIES[scene.kind]))
    filled = slots(side, common_word)
    other = slots(replace(side, first=Thing(absent, side.first.size)), common_word)
    bare = plural(side.first.name) if side.kind == "group" else filled.a
    negated = fill(_NEGATIONS[side.kind][number][cue], filled, bare=bare, an_absent=other.an_a)
    return NegationText(fill(QUERIES[side.kind][number], filled), negated)


def frames() -> Iterator[str]:
    """Every frame of a negation."""
    by_kind: Sequence[tuple[dict[str, str], ...]] = tuple(_NEGATIONS.values())
    return (frame for kind in by_kind for cues in kind for frame in cues.values())
