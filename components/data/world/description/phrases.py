"""Noun phrases of a scene's facts, with words of a chosen tier, and frames filled with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from components.data.world.description.lexicon import Concept, load_lexicon, plural, with_article
from components.data.world.description.scenes import INVERSE, Scene

Chooser = Callable[[Concept], str]
"""Picks the word that a concept gets in one sentence."""


@dataclass(frozen=True)
class Slots:
    """The parts of a sentence about one scene, ready to be put into a frame.

    `a` and `b` are bare ("small dog"), `an_a` and `an_b` carry their article; in a group `a` is
    the plural noun with its count ("three dogs").
    """

    a: str
    an_a: str
    colour: str
    b: str = ""
    an_b: str = ""
    relation: str = ""
    inverse: str = ""
    position: str = ""


def slots(scene: Scene, choose: Chooser) -> Slots:
    """Fill the slots of `scene` with the words that `choose` picks, one choice per concept."""
    lexicon = load_lexicon()
    chosen: dict[str, str] = {}

    def word(name: str) -> str:
        if name not in chosen:
            chosen[name] = choose(lexicon.concept(name))
        return chosen[name]

    colour = word(scene.colour)
    noun = word(scene.first.name)
    if scene.kind == "group":
        counted = f"{word(scene.count)} {plural(noun)}"
        return Slots(counted, with_article(counted) if counted.split()[1] == "of" else counted, colour)
    a = f"{word(scene.first.size)} {noun}"
    if scene.second is None:
        return Slots(a, with_article(a), colour, position=scene.position)
    b = f"{word(scene.second.size)} {word(scene.second.name)}"
    relation, inverse = word(scene.relation), word(INVERSE[scene.relation])
    return Slots(a, with_article(a), colour, b, with_article(b), relation, inverse)


def common_word(concept: Concept) -> str:
    """Chooses the common word of every concept."""
    return concept.word("common")


def fill(frame: str, filled: Slots, **more: str) -> str:
    """The sentence that `frame` makes of the slots and `more`, beginning with a capital."""
    sentence = frame.format(**asdict(filled), **more)
    return sentence[0].upper() + sentence[1:]
