"""Scenes: their facts, drawn from a seed and split by object pair and by scene, and noun phrases of these facts."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from components.data.world.lexicon import Concept, load_lexicon, plural, with_article

Kind = Literal["pair", "single", "group"]
Split = Literal["train", "val", "test"]
SIZES = ("small", "large")
RELATIONS = ("left", "right", "above", "below")
INVERSE = {"left": "right", "right": "left", "above": "below", "below": "above"}
POSITIONS = ("center", "top left corner", "top right corner", "bottom left corner", "bottom right corner")
COUNTS = ("two", "three", "four")
_KIND_WEIGHTS: dict[Kind, int] = {"pair": 70, "single": 15, "group": 15}
_HELD_OUT_PAIR_PERCENT = 8


@dataclass(frozen=True)
class Thing:
    """An object of the lexicon at one of two sizes."""

    name: str
    size: str


@dataclass(frozen=True)
class Scene:
    """The facts of one picture; `first` stands `relation` of `second` in a pair."""

    kind: Kind
    colour: str
    first: Thing
    second: Thing | None = None
    relation: str = ""
    position: str = ""
    count: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Scene:
        """Inverse of `to_json`."""
        raw = json.loads(text)
        first, second = Thing(**raw.pop("first")), raw.pop("second")
        return Scene(first=first, second=Thing(**second) if second else None, **raw)

    def canonical(self) -> Scene:
        """The same facts from one fixed side, so that equal pictures compare equal."""
        if self.second is None or self.relation in ("left", "above"):
            return self
        return self.mirrored()

    def mirrored(self) -> Scene:
        """The same facts of a pair from the other side; other kinds of scenes have one side only."""
        if self.second is None:
            return self
        return Scene("pair", self.colour, self.second, self.first, INVERSE[self.relation])

    @property
    def names(self) -> tuple[str, ...]:
        return (self.first.name,) if self.second is None else (self.first.name, self.second.name)


def pair_is_held_out(one: str, other: str) -> bool:
    """Whether no training scene may show these two objects together."""
    digest = hashlib.sha256("|".join(sorted((one, other))).encode()).digest()
    return int.from_bytes(digest[:4], "big") % 100 < _HELD_OUT_PAIR_PERCENT


def draw_scenes(seed: int, counts: dict[Split, int]) -> Iterator[tuple[Split, Scene]]:
    """Yield the scenes of every split; no two splits share a scene's facts.

    Every other pair in `test` and `val` shows two objects that no training scene shows together.
    """
    seen_elsewhere: set[Scene] = set()
    for split in ("test", "val", "train"):
        rng = random.Random(f"scenes-{seed}-{split}")
        mine: set[Scene] = set()
        pairs = 0
        for _ in range(counts[split]):
            kind = rng.choices(list(_KIND_WEIGHTS), weights=list(_KIND_WEIGHTS.values()))[0]
            held_out = split != "train" and pairs % 2 == 0
            # A training scene may come twice, a test scene may not.
            refused = seen_elsewhere if split == "train" else seen_elsewhere | mine
            scene = _draw(rng, kind)
            while scene.canonical() in refused or (kind == "pair" and pair_is_held_out(*scene.names) != held_out):
                scene = _draw(rng, kind)
            mine.add(scene.canonical())
            pairs += kind == "pair"
            yield split, scene
        seen_elsewhere |= mine


def _draw(rng: random.Random, kind: Kind) -> Scene:
    lexicon = load_lexicon()
    names = list(lexicon.objects)
    colour = rng.choice(list(lexicon.colours))
    first = Thing(rng.choice(names), rng.choice(SIZES))
    if kind == "single":
        return Scene("single", colour, first, position=rng.choice(POSITIONS))
    if kind == "group":
        return Scene("group", colour, Thing(first.name, "small"), count=rng.choice(COUNTS))
    other = rng.choice([name for name in names if name != first.name])
    return Scene("pair", colour, first, Thing(other, rng.choice(SIZES)), relation=rng.choice(RELATIONS))


Chooser = Callable[[Concept], str]
"""Picks the word that a concept gets in one sentence."""


@dataclass(frozen=True)
class Slots:
    """The parts of a sentence about one scene, for a frame.

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
