"""Checks that only the synthetic dataset allows: by its facts, its evaluation frames and its last tier of words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product

from components.data.world import facts
from components.data.world.description import difference_text, evaluation_text, likeness, negation_text
from components.data.world.description.lexicon import load_lexicon
from components.data.world.description.scenes import COUNTS, POSITIONS, RELATIONS, SIZES, Scene, Thing

ORDINAL = re.compile(r"\b(?:first|second)\b", re.IGNORECASE)
"""The words by which a difference names its two pictures."""


def find_leak(text: str) -> str | None:
    """`word` if `text` has a word of the last tier, `frame` if it fits an evaluation frame, else None."""
    if _unseen_words().search(text):
        return "word"
    return "frame" if any(frame.search(text.strip()) for frame in evaluation_frames()) else None


class FactChecks:
    """Checks of texts against the facts of pictures, which are given as JSON."""

    def find_fault(self, text: str, scene_facts: str) -> str | None:
        """The first fact that `text` gets wrong, omits or adds; None if it is faithful."""
        return facts.find_fault(text, Scene.from_json(scene_facts))

    def find_part_fault(self, text: str, scene_facts: str) -> str | None:
        """The first fact that `text`, which may omit any, gets wrong or adds; `nothing` if it has no fact."""
        return facts.find_part_fault(text, Scene.from_json(scene_facts))

    def tells_another(self, text: str, scene_facts: str) -> bool:
        """Whether `text` is certainly false: it describes another scene of the same objects completely.

        A fault proves nothing: a text without the colour has one and is true.
        """
        scene = Scene.from_json(scene_facts)
        described = scene
        for fault, variants in _VARIANTS.items():
            fitting = (variant for variant in variants(described) if facts.find_fault(text, variant) != fault)
            described = next(fitting, scene)
        return described.canonical() != scene.canonical() and facts.find_fault(text, described) is None

    def find_stranger(self, text: str, scenes_facts: Sequence[str]) -> str | None:
        """`object`, `colour`, `count` or `size` if `text` mentions one that none of the scenes has, else None."""
        scenes = [Scene.from_json(scene_facts) for scene_facts in scenes_facts]
        shown = {
            "object": {name for scene in scenes for name in scene.names},
            "colour": {scene.colour for scene in scenes},
            "count": {scene.count or ("two" if scene.second else "one") for scene in scenes},
            "size": {thing.size for scene in scenes for thing in (scene.first, scene.second) if thing is not None},
        }
        text = _BEING_PRESENT.sub(" ", text)
        rest = _object_words().sub(" ", text)
        kinds = {"colour": tuple(load_lexicon().colours), "count": COUNTS, "size": SIZES}
        mentioned = {"object": _objects_named(text)}
        mentioned |= {kind: facts.words_found(rest, names) for kind, names in kinds.items()}
        return next((kind for kind, names in mentioned.items() if names - shown[kind]), None)

    def find_size_fault(self, text: str, scene_facts: str, other_facts: str) -> str | None:
        """`size` if `text` compares sizes and the facts do not show that it is right, else None.

        It is right if all objects before "larger than" are of one picture and large, and those of the other picture
        after it are small. "First" or "second" decides which picture comes before. Objects of a group have no size.
        """
        compared = _LARGER.search(text)
        if compared is None:
            return None
        lead, rest = text[: compared.start()], text[compared.end() :]
        before, after, ordinal = _objects_named(lead), _objects_named(rest), ORDINAL.search(lead)
        first, second = (difference_text.sizes_shown(Scene.from_json(scene)) for scene in (scene_facts, other_facts))
        orders = [(first, second), (second, first)]
        if ordinal:
            orders = orders[:1] if ordinal[0].lower() == "first" else orders[1:]
        orders = [(one, other) for one, other in orders if before <= one.keys()]
        if len(orders) != 1 or not rest.startswith(" than "):
            return "size"
        one, other = orders[0]
        sizes = {one[name] for name in before}, {other[name] for name in after if name in other}
        return None if sizes == (({"large"}, {"small"}) if compared[1] else ({"small"}, {"large"})) else "size"

    def names(self, text: str, scene_facts: str, other_facts: str) -> bool:
        """Whether `text` names an object of the first scene, one that the other lacks if there is one."""
        own, other = (set(Scene.from_json(scene).names) for scene in (scene_facts, other_facts))
        return bool(_objects_named(text) & ((own - other) or own))


def _colours(scene: Scene) -> Iterator[Scene]:
    return (replace(scene, colour=colour) for colour in load_lexicon().colours)


def _counts(scene: Scene) -> Iterator[Scene]:
    return (replace(scene, count=count) for count in (COUNTS if scene.kind == "group" else [scene.count]))


def _sizes(scene: Scene) -> Iterator[Scene]:
    things = [thing.name for thing in (scene.first, scene.second) if thing is not None]
    for sizes in product(SIZES, repeat=len(things)):
        first, second = (*map(Thing, things, sizes), None)[:2]
        assert first is not None
        yield replace(scene, first=first, second=second)


def _places(scene: Scene) -> Iterator[Scene]:
    return (replace(scene, position=place) for place in (POSITIONS if scene.kind == "single" else [scene.position]))


def _relations(scene: Scene) -> Iterator[Scene]:
    return (replace(scene, relation=word) for word in (RELATIONS if scene.kind == "pair" else [scene.relation]))


_VARIANTS: dict[str, Callable[[Scene], Iterator[Scene]]] = {
    "colour": _colours, "count": _counts, "size": _sizes, "position": _places, "relation": _relations,
}  # fmt: skip
"""Other scenes by their difference, in the order of the checks of `facts.find_fault`."""


_LARGER = re.compile(r"\b(?:(larger|bigger)|smaller|tinier)\b", re.IGNORECASE)

_BEING_PRESENT = re.compile(r"\b(?:is|are|be|being|not|nor) present\b", re.IGNORECASE)
"""The lexicon's "present" is a gift."""


@cache
def _unseen_words() -> re.Pattern[str]:
    return facts.any_word(load_lexicon().tier_words("unseen"))


@cache
def _object_words() -> re.Pattern[str]:
    return facts.any_word(word for concept in load_lexicon().objects.values() for word in facts.known_words(concept))


def _objects_named(text: str) -> set[str]:
    """Objects that `text` names; of overlapping words only the longest counts, as in "teddy bear"."""
    words = _object_words().findall(text)
    return {name for name in load_lexicon().objects for word in words if facts.object_pattern(name).fullmatch(word)}


_SLOT = re.compile(r"\\\{\w+\\\}")


@cache
def evaluation_frames() -> tuple[re.Pattern[str], ...]:
    """One pattern per evaluation frame, each slot matching any words; for leak checks."""
    frames = (
        *sum(evaluation_text.QUERIES.values(), ()),
        *sum(evaluation_text.PARAPHRASES.values(), ()),
        *negation_text.frames(),
        *difference_text.frames(),
        *likeness.FRAMES,
    )
    return tuple(_pattern(frame) for frame in frames)


def _pattern(frame: str) -> re.Pattern[str]:
    body = _SLOT.sub(lambda _slot: r"[\w' -]+?", re.escape(frame.rstrip(".")))
    return re.compile(rf"^\W*{body}\W*$", re.IGNORECASE)
