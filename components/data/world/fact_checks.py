"""Checks that only the synthetic dataset allows: by its facts, its evaluation frames and its last tier of words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise, product

from components.data.world import difference_text, evaluation_text, likeness
from components.data.world.lexicon import TIERS, Concept, load_lexicon, word_pattern
from components.data.world.scenes import COUNTS, INVERSE, POSITIONS, RELATIONS, SIZES, Scene, Thing

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
        return find_fault(text, Scene.from_json(scene_facts))

    def find_part_fault(self, text: str, scene_facts: str) -> str | None:
        """The first fact that `text`, which may omit any, gets wrong or adds; `nothing` if it has no fact."""
        return find_part_fault(text, Scene.from_json(scene_facts))

    def tells_another(self, text: str, scene_facts: str) -> bool:
        """Whether `text` is certainly false: it describes another scene of the same objects completely.

        A fault proves nothing: a text without the colour has one and is true.
        """
        scene = Scene.from_json(scene_facts)
        described = scene
        for fault, variants in _VARIANTS.items():
            fitting = (variant for variant in variants(described) if find_fault(text, variant) != fault)
            described = next(fitting, scene)
        return described.canonical() != scene.canonical() and find_fault(text, described) is None

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
        mentioned |= {kind: words_found(rest, names) for kind, names in kinds.items()}
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


def _sizes(scene: Scene) -> Iterator[Scene]:
    things = [thing.name for thing in (scene.first, scene.second) if thing is not None]
    for sizes in product(SIZES, repeat=len(things)):
        first, second = (*map(Thing, things, sizes), None)[:2]
        assert first is not None
        yield replace(scene, first=first, second=second)


_VARIANTS: dict[str, Callable[[Scene], Iterable[Scene]]] = {
    "colour": lambda scene: (replace(scene, colour=colour) for colour in load_lexicon().colours),
    "count": lambda scene: (replace(scene, count=n) for n in (COUNTS if scene.kind == "group" else [scene.count])),
    "size": _sizes,
    "position": lambda scene: (
        replace(scene, position=place) for place in (POSITIONS if scene.kind == "single" else [scene.position])
    ),
    "relation": lambda scene: (
        replace(scene, relation=word) for word in (RELATIONS if scene.kind == "pair" else [scene.relation])
    ),
}
"""Other scenes by their difference, in the order of the checks of `find_fault`."""


_LARGER = re.compile(r"\b(?:(larger|bigger)|smaller|tinier)\b", re.IGNORECASE)

_BEING_PRESENT = re.compile(r"\b(?:is|are|be|being|not|nor) present\b", re.IGNORECASE)
"""The lexicon's "present" is a gift."""


@cache
def _unseen_words() -> re.Pattern[str]:
    return any_word(load_lexicon().tier_words("unseen"))


@cache
def _object_words() -> re.Pattern[str]:
    return any_word(word for concept in load_lexicon().objects.values() for word in known_words(concept))


def _objects_named(text: str) -> set[str]:
    """Objects that `text` names; of overlapping words only the longest counts, as in "teddy bear"."""
    words = _object_words().findall(text)
    return {name for name in load_lexicon().objects for word in words if object_pattern(name).fullmatch(word)}


_SLOT = re.compile(r"\\\{\w+\\\}")


@cache
def evaluation_frames() -> tuple[re.Pattern[str], ...]:
    """One pattern per evaluation frame, each slot matching any words; for leak checks."""
    frames = (
        *sum(evaluation_text.QUERIES.values(), ()),
        *sum(evaluation_text.PARAPHRASES.values(), ()),
        *evaluation_text.negation_frames(),
        *difference_text.frames(),
        *likeness.FRAMES,
    )
    return tuple(_pattern(frame) for frame in frames)


def _pattern(frame: str) -> re.Pattern[str]:
    body = _SLOT.sub(lambda _slot: r"[\w' -]+?", re.escape(frame.rstrip(".")))
    return re.compile(rf"^\W*{body}\W*$", re.IGNORECASE)


Span = tuple[int, int]
_POSITION_WORDS = {
    "center": "center|centre|middle|central",
    "top": "top|upper",
    "bottom": "bottom|lower",
    "left": "left",
    "right": "right",
}
_RELATION_WORDS = {
    "left": r"left(?![- ](?:hand )?corner)",
    "right": r"right(?![- ](?:hand )?corner)",
    "above": r"above|over(?! an? (?:all|solid|plain|flat)\b)|higher than|on top of",
    "below": r"below|under|beneath|underneath|lower than",
}


def find_fault(text: str, scene: Scene) -> str | None:
    """The first fact that `text` gets wrong, omits or adds; None if it is faithful to `scene`."""
    lowered = text.lower()
    mentions = {name: _spans(lowered, name) for name in scene.names}
    for places in mentions.values():
        if len(places) != 1:
            return "object_repeated" if places else "object_missing"
    spans = {name: places[0] for name, places in mentions.items()}
    if _names_another_object(lowered, scene, list(spans.values())):
        return "object_added"
    outside = _blank(lowered, list(spans.values()))
    if words_found(outside, tuple(load_lexicon().colours)) != {scene.colour}:
        return "colour"
    return _find_arrangement_fault(outside, scene, spans)


def find_part_fault(text: str, scene: Scene) -> str | None:
    """The first fact that `text`, which may omit any, gets wrong or adds; None if all its facts are true.

    `nothing` if it names neither an object nor the colour of the scene.
    """
    lowered = text.lower()
    mentions = {name: _spans(lowered, name) for name in scene.names}
    spans = [span for places in mentions.values() for span in places]
    if _names_another_object(lowered, scene, spans):
        return "object_added"
    if len(spans) > sum(map(bool, mentions.values())):
        return "object_repeated"
    outside, named = _blank(lowered, spans), {name: places[0] for name, places in mentions.items() if places}
    colours = words_found(outside, tuple(load_lexicon().colours))
    if colours - {scene.colour}:
        return "colour"
    return _find_wrong_arrangement(outside, scene, named) if named or colours else "nothing"


def _find_wrong_arrangement(outside: str, scene: Scene, named: dict[str, Span]) -> str | None:
    if words_found(outside, COUNTS) - {scene.count or ("two" if scene.second else "one")}:
        return "count"
    if scene.kind == "group":
        return None
    for thing in (scene.first, scene.second):
        if thing is not None and thing.name in named and _sizes_before(outside, named[thing.name]) - {thing.size}:
            return "size"
    if scene.second is None:
        return "position" if _positions_in(outside) - set(scene.position.split()) else None
    related = len(named) == len(scene.names) and _relations_in(outside)
    first, second = scene.first.name, scene.second.name
    return "relation" if related and not _relation_holds(outside, scene, named[first], named[second]) else None


def _find_arrangement_fault(outside: str, scene: Scene, spans: dict[str, Span]) -> str | None:
    if scene.kind == "group":
        return None if words_found(outside, COUNTS) == {scene.count} else "count"
    for thing in (scene.first, scene.second):
        if thing is not None and _sizes_before(outside, spans[thing.name]) != {thing.size}:
            return "size"
    if scene.second is None:
        return None if _positions_in(outside) == set(scene.position.removesuffix(" corner").split()) else "position"
    return None if _relation_holds(outside, scene, spans[scene.first.name], spans[scene.second.name]) else "relation"


def known_words(concept: Concept) -> list[str]:
    """The words for a concept that may occur in training texts."""
    return [word for tier, word in concept.words.items() if tier in TIERS[:3]]


def any_word(words: Iterable[str]) -> re.Pattern[str]:
    """Matches each of the words; of overlapping words the longest, as in "teddy bear"."""
    longest_first = sorted(words, key=len, reverse=True)
    return re.compile("|".join(word_pattern(word).pattern for word in longest_first), re.IGNORECASE)


@cache
def object_pattern(name: str) -> re.Pattern[str]:
    """Matches the known words for an object."""
    return any_word(known_words(load_lexicon().objects[name]))


def _spans(text: str, name: str) -> list[Span]:
    return [match.span() for match in object_pattern(name).finditer(text)]


def _names_another_object(text: str, scene: Scene, own: list[Span]) -> bool:
    masked = _blank(text, own)
    return any(object_pattern(name).search(masked) for name in load_lexicon().objects if name not in scene.names)


def _blank(text: str, spans: list[Span]) -> str:
    for start, end in spans:
        text = text[:start] + "\x00" * (end - start) + text[end:]
    return text


def words_found(text: str, names: Sequence[str]) -> set[str]:
    """The attributes among `names` that `text` mentions by any known word."""
    known = load_lexicon().attributes
    return {name for name in names if any(word_pattern(word).search(text) for word in known_words(known[name]))}


def _positions_in(text: str) -> set[str]:
    return {word for word, body in _POSITION_WORDS.items() if re.search(rf"\b(?:{body})\b", text)}


def _sizes_before(text: str, span: Span) -> set[str]:
    before = text[max(0, text.rfind("\x00", 0, span[0])) : span[0]].split()[-2:]
    return words_found(" ".join(before), SIZES)


def _relation_holds(text: str, scene: Scene, first: Span, second: Span) -> bool:
    """Whether the sentence's only relation phrase, in its order, is the scene's."""
    swapped = first > second
    near, far = sorted((first, second))
    relations = _relations_in(text[near[1] : far[0]])
    inverted = not relations
    if inverted:
        lead = text[: near[0]]
        if re.search(r"\bits\b|\bit\b", lead):
            return False
        relations = _relations_in(lead)
    if len(relations) != 1:
        return False
    (relation,) = relations
    return (INVERSE[relation] if swapped != inverted else relation) == scene.relation


def _relations_in(text: str) -> list[str]:
    places = sorted(
        (match.start(), name)
        for name in RELATIONS
        for match in re.finditer(rf"\b(?:{_RELATION_WORDS[name]})(?![a-z])", text)
    )
    names = [name for _, name in places]
    return [name for name, later in pairwise([*names, ""]) if name != later]
