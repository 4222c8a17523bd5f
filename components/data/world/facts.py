"""Checks whether a sentence describes a scene of the synthetic dataset exactly."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise

from components.data.world.description.lexicon import TIERS, Concept, load_lexicon, word_pattern
from components.data.world.description.scenes import COUNTS, INVERSE, RELATIONS, SIZES, Scene

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
