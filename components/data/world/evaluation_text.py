"""Sentences for evaluation only: plain queries, human-written paraphrases of them, and queries made false by a cue.

No training text may have a frame of this file, `difference_text` or `likeness`, or a word of the lexicon's last tier.
As in CC-Neg (Singh et al. 2024) a negation is minimal: all its words are common ones, so only the cue differs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from components.data.world.lexicon import TIERS, Concept, Tier, load_lexicon, plural
from components.data.world.scenes import Scene, Thing, common_word, fill, slots

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
CUES = ("no", "not", "without", "not_but")
"""Cues of negations; `not_but` names an absent object in place of the one that is shown."""

_DENIALS: dict[str, tuple[tuple[str, str], ...]] = {
    "pair": (
        (
            "There is not a single {bare} {relation} {an_b} and the background is {colour}.",
            "There is {an_b} without {an_a} {relation} it and the background is {colour}.",
        ),
        (
            "This does not show {an_a} {relation} {an_b}, with a plain {colour} background.",
            "This shows {an_b} without {an_a} {relation} it, with a plain {colour} background.",
        ),
        (
            "On {colour}, not a single {bare} is {relation} {an_b}.",
            "On {colour}, {an_b} is without {an_a} {relation} it.",
        ),
    ),
    "single": (
        (
            "There is not a single {bare} in the {position} and the background is {colour}.",
            "There is a {position} without {an_a} and the background is {colour}.",
        ),
        (
            "This does not show {an_a} in the {position}, with a plain {colour} background.",
            "This shows the {position} without {an_a}, with a plain {colour} background.",
        ),
    ),
    "group": (
        (
            "There are not any {bare} and the background is {colour}.",
            "There is a scene without {bare} and the background is {colour}.",
        ),
        (
            "This does not show any {bare}, with a plain {colour} background.",
            "This shows a scene without {bare}, with a plain {colour} background.",
        ),
    ),
}
"""Kind of scene -> each frame of `QUERIES` denied with `not` and with `without`, in the same order."""


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


def negation_text(scene: Scene, rng: random.Random, cue: str) -> tuple[str, str]:
    """A true sentence about a scene and the same denied, in one frame; either object of a pair may be denied."""
    side = scene.mirrored() if rng.random() < 0.5 else scene
    absent = rng.choice([name for name in load_lexicon().objects if name not in scene.names])
    number = rng.randrange(len(QUERIES[scene.kind]))
    filled = slots(side, common_word)
    other = slots(replace(side, first=Thing(absent, side.first.size)), common_word)
    bare = plural(side.first.name) if side.kind == "group" else filled.a
    negated = fill(_denied(side.kind, number, cue), filled, bare=bare, an_absent=other.an_a)
    return fill(QUERIES[side.kind][number], filled), negated


def negation_frames() -> Iterator[str]:
    """Every frame of a negation."""
    return (_denied(kind, n, cue) for kind, frames in QUERIES.items() for n in range(len(frames)) for cue in CUES)


def _denied(kind: str, number: int, cue: str) -> str:
    """A frame of `QUERIES` with a cue of a negation."""
    if cue in ("no", "not_but"):
        instead = {"no": "no {bare}", "not_but": "not {an_a} but {an_absent}"}
        return QUERIES[kind][number].replace("{an_a}", instead[cue])
    return _DENIALS[kind][number][cue == "without"]
