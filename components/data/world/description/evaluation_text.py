"""Sentences for evaluation only: plain queries and human-written paraphrases of them.

No training text may have a frame of this file, `negation_text`, `difference_text` or `likeness`, or a word of the
lexicon's last tier.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from components.data.world.description.lexicon import TIERS, Concept, Tier
from components.data.world.description.scenes import Scene, Thing, common_word, fill, slots

QUERIES = {
    "pair": (
        "There is {an_a} {relation} {an_b} and the background is {colour}.",
        "This shows {an_a} {relation} {an_b}, with a plain {colour} background.",
        "On {colour}, {an_a} is {relation} {an_b}.",
    ),
    "single": (
        "There is {an_a} in the {position} and the background is {colour}.",
        "This shows {an_a} in the {position}, with a plain {colour} background.",
    ),
    "group": (
        "There are {an_a} and the background is {colour}.",
        "This shows {an_a}, with a plain {colour} background.",
    ),
}
PARAPHRASES = {
    "pair": (
        "Against {colour}, you can see {an_a} {relation} {an_b}.",
        "We are looking at {an_b} that is {inverse} {an_a}; everything behind them is {colour}.",
        "{colour} fills the frame, where {an_a} has been placed {relation} {an_b}.",
        "If you look closely, {an_b} is {inverse} {an_a} on an all {colour} canvas.",
        "Someone put {an_a} {relation} {an_b} and painted the rest {colour}.",
        "What we have here is {an_a}, and it is {relation} {an_b}, everything else being {colour}.",
    ),
    "single": (
        "Against {colour}, you can see {an_a} over in the {position}.",
        "We are looking at {an_a} tucked into the {position}; everything behind it is {colour}.",
        "Someone put {an_a} in the {position} and painted the rest {colour}.",
    ),
    "group": (
        "Against {colour}, you can see {an_a}.",
        "We are looking at {an_a}; everything behind them is {colour}.",
        "Someone put {an_a} together and painted the rest {colour}.",
    ),
}


@dataclass(frozen=True)
class EvaluationText:
    """A plain query, a paraphrase of it, and the tier of the paraphrase's hardest word."""

    query: str
    paraphrase: str
    tier: Tier


def evaluation_text(scene: Scene, rng: random.Random, wanted: Tier) -> EvaluationText:
    """Both sentences; the paraphrase uses words of tier `wanted` if the scene has any."""
    used: list[Tier] = ["common"]

    def choose(concept: Concept) -> str:
        if wanted in concept.words:
            used.append(wanted)
        return concept.word(wanted)

    paraphrase = fill(rng.choice(PARAPHRASES[scene.kind]), slots(scene, choose))
    return EvaluationText(plain_query(scene, rng), paraphrase, max(used, key=TIERS.index))


def plain_query(scene: Scene, rng: random.Random) -> str:
    """A plain sentence about `scene` in common words."""
    return fill(rng.choice(QUERIES[scene.kind]), slots(scene, common_word))


def swapped(scene: Scene, what: str) -> Scene | None:
    """The scene with its objects (`relation`) or sizes (`attribute`) exchanged; None if nothing would change."""
    second = scene.second
    if second is None:
        return None
    if what == "relation":
        return Scene("pair", scene.colour, second, scene.first, scene.relation)
    if scene.first.size == second.size:
        return None
    first, resized = Thing(scene.first.name, second.size), Thing(second.name, scene.first.size)
    return Scene("pair", scene.colour, first, resized, scene.relation)
