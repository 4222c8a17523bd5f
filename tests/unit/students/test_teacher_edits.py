"""The teacher sets of edits, absences and units: written by hand, and true to the scenes of their captions."""

from __future__ import annotations

import csv
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from components.data.world.description.lexicon import load_lexicon, plural
from components.data.world.description.scenes import (
    COUNTS,
    INVERSE,
    POSITIONS,
    RELATIONS,
    SIZES,
    Scene,
    Thing,
    pair_is_held_out,
)
from components.validation.rules.checks.general import says_name
from components.validation.rules.tables.negations import find_denial_fault
from components.validation.rules.world.checks import find_leak
from components.validation.rules.world.facts import find_fault, find_part_fault

TEACHER = Path(__file__).parents[3] / "components" / "students" / "assets" / "teacher_edits.tsv"
WANTED = {"negate_semclip": 150, "negate_terms": 130, "swap_negative": 160, "difference": 200}
MAX_WORDS, MIN_DIFFERENCE_LETTERS = 30, 60
NOISE = re.compile(
    r"IMG|photo|stock|vector|clipart|\bbg\b|buy now|download|wallpaper \||[#@_|\[\]<>\"\t]|\.(?:png|jpg)|\d"
)
CUE = re.compile(
    r"\b(?:not?|never|none|nor|neither|nothing|nobody|nowhere|zero|without|instead|hardly|un(?:like|true)|fails?|refuses"
    r"|lack(?:s|ing)?|absent|missing|gone|empty|bare|free|false|far|cannot|can't|\w+n't|nonexistent|excluded)\b",
    re.IGNORECASE,
)
TERM = re.compile(r"\b(?:no|not|without)\b", re.IGNORECASE)

Row = dict[str, str]


@cache
def _rows() -> tuple[Row, ...]:
    with TEACHER.open(encoding="utf-8", newline="") as stream:
        return tuple(csv.DictReader(stream, delimiter="\t", strict=True))


def _of(task: str) -> list[Row]:
    return [row for row in _rows() if row["task"] == task]


@cache
def _words_of(names: tuple[str, ...]) -> tuple[re.Pattern[str], dict[str, str]]:
    """One pattern for every training word of the concepts `names`, and the concept that each word stands for."""
    concept = load_lexicon().concept
    words = {word: name for name in names for tier, word in concept(name).words.items() if tier != "unseen"}
    forms = {form: name for word, name in words.items() for form in (word, plural(word) if word.isalpha() else word)}
    forms |= {plural(word): name for word, name in words.items() if " " in word}
    body = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
    return re.compile(rf"(?<![\w-])(?:{body})(?![\w-])"), forms


def _mentions(text: str, names: tuple[str, ...]) -> list[tuple[re.Match[str], str]]:
    pattern, forms = _words_of(names)
    return [(match, forms[match.group()]) for match in pattern.finditer(text.lower())]


def _objects(text: str) -> list[tuple[re.Match[str], str]]:
    return _mentions(text, tuple(load_lexicon().objects))


def _without_objects(text: str) -> str:
    for match, _ in _objects(text):
        text = text[: match.start()] + "~" * len(match.group()) + text[match.end() :]
    return text


def _words(text: str, names: tuple[str, ...]) -> list[str]:
    return [name for _, name in _mentions(_without_objects(text), names)]


def _sizes(text: str) -> list[tuple[str, str]]:
    """Every (object, size) of `text` where the size stands right before the object."""
    found = []
    for match, name in _objects(text):
        before = text[: match.start()].split()[-1:]
        found += [(name, size) for size in _words(" ".join(before).lower(), SIZES)]
    return found


def _colours(text: str) -> set[str]:
    return set(_words(text, tuple(load_lexicon().colours)))


@cache
def _scene(caption: str) -> Scene:
    """The scene that an alt-text of training was written for."""
    parts = caption.replace("_", " ").split(" | ")
    text = " ".join(parts[1:] or parts).split("(", 1 if "picture" in caption else 0)[-1]
    names = [name for _, name in _objects(text)]
    (colour,) = _colours(text)
    counted = _words(re.sub(r"\[.*?\]|IMG \d+|photo-\d+|ref \w+", "", text), COUNTS)
    if counted:
        candidates = [Scene("group", colour, Thing(names[0], "small"), count=counted[0])]
    else:
        things = [Thing(*pair) for pair in _sizes(text)]
        candidates = [Scene("single", colour, things[0], position=position) for position in POSITIONS]
        if len(things) == 2:
            candidates = [Scene("pair", colour, things[0], things[1], relation) for relation in RELATIONS]
    (found,) = (scene for scene in candidates if find_fault(text, scene) is None)
    return found


def _swaps(scene: Scene) -> list[Scene]:
    """Every scene that differs from `scene` by an exchange of sizes or objects, by place, size or count."""
    kind, colour, first = scene.kind, scene.colour, scene.first
    if kind == "group":
        return [Scene(kind, colour, first, count=count) for count in COUNTS if count != scene.count]
    if scene.second is None:
        sizes = [Scene(kind, colour, Thing(first.name, size), position=scene.position) for size in SIZES]
        moved = [Scene(kind, colour, first, position=position) for position in POSITIONS]
        return [other for other in sizes + moved if other != scene]
    second = scene.second
    one, other = Thing(first.name, second.size), Thing(second.name, first.size)
    pairs = [(second, first), (one, other), (other, one)]
    swapped = [Scene(kind, colour, left, right, scene.relation) for left, right in pairs]
    return [other for other in swapped if other != scene]


def _relation_holds(text: str, scene: Scene) -> bool:
    """Whether the relation between the scene's two objects, where `text` has one, is the scene's."""
    found = {name: match for match, name in _objects(text) if name in scene.names}
    if len(found) < 2:
        return True
    near, far = sorted(found, key=lambda name: found[name].start())
    said = _words(text[found[near].end() : found[far].start()], RELATIONS)
    wanted = scene.relation if near == scene.first.name else INVERSE[scene.relation]
    return said in ([], [wanted])


def test_columns_and_counts() -> None:
    assert all(list(row) == ["task", "caption", "other_caption", "answer"] for row in _rows())
    counts = Counter(row["task"] for row in _rows())
    assert set(counts) == set(WANTED)
    assert all(counts[task] >= wanted for task, wanted in WANTED.items()), counts


def test_no_question_and_no_answer_comes_twice() -> None:
    for column in ("caption", "answer"):
        counts = Counter((row["task"], row[column].lower()) for row in _rows())
        assert counts.most_common(1)[0][1] == 1, counts.most_common(3)


@pytest.mark.parametrize("task", WANTED)
def test_answers_are_short_plain_sentences(task: str) -> None:
    for row in _of(task):
        answer = row["answer"]
        assert answer.isascii(), answer
        assert answer == " ".join(answer.split()), answer
        assert 3 <= len(answer.split()) <= MAX_WORDS, answer
        assert re.fullmatch(r"[A-Z].*[.?]", answer), answer
        assert not NOISE.search(answer), answer


def test_no_answer_holds_an_evaluation_frame_or_a_last_tier_word() -> None:
    texts = [row[column] for row in _rows() for column in ("caption", "other_caption", "answer")]
    assert [text for text in texts if find_leak(text)] == []


def test_captions_are_those_of_training_scenes() -> None:
    for row in _rows():
        assert bool(row["other_caption"]) == (row["task"] == "difference"), row
        for caption in filter(None, (row["caption"], row["other_caption"])):
            names = _scene(caption).names
            assert len(names) < 2 or not pair_is_held_out(*names), caption


def test_negations_contradict_their_caption() -> None:
    rows = _of("negate_semclip")
    cued = [row for row in rows if CUE.search(row["answer"])]
    assert 0.75 < len(cued) / len(rows) < 0.9
    for row in rows:
        scene = _scene(row["caption"])
        named = {name for _, name in _objects(row["answer"])}
        assert named <= set(scene.names), row
        assert named or scene.colour in _colours(row["answer"]), row
        assert find_fault(row["answer"], scene) or row in cued, row


def test_terms_are_the_caption_with_one_cue() -> None:
    rows = _of("negate_terms")
    counts: Counter[str] = Counter()
    for row in rows:
        answer = row["answer"]
        (cue,) = TERM.findall(answer)
        counts[cue.lower()] += 1
        plain = TERM.sub("", answer)
        assert not re.search(r"\b(?:none|never|nothing|neither|nor|\w+n't)\b", plain), row
        assert find_fault(plain, _scene(row["caption"])) in (None, "relation"), row
    assert min(counts[cue] for cue in ("no", "not", "without")) > 0.28 * len(rows), counts


def test_swaps_tell_another_scene_of_the_same_things() -> None:
    for row in _of("swap_negative"):
        scene = _scene(row["caption"])
        assert find_fault(row["answer"], scene) is not None, row
        assert any(find_fault(row["answer"], other) is None for other in _swaps(scene)), row
        assert not CUE.search(row["answer"]), row


def test_differences_are_true_of_both_pictures() -> None:
    for row in _of("difference"):
        answer, scenes = row["answer"], [_scene(row["caption"]), _scene(row["other_caption"])]
        assert len(answer) >= MIN_DIFFERENCE_LETTERS, row
        assert scenes[0].canonical() != scenes[1].canonical(), row
        named = [name for _, name in _objects(answer)]
        assert all(set(scene.names) & set(named) for scene in scenes), row
        assert set(named) <= {name for scene in scenes for name in scene.names}, row
        assert _colours(answer) <= {scene.colour for scene in scenes}, row
        things = {(thing.name, thing.size) for scene in scenes for thing in (scene.first, scene.second) if thing}
        assert set(_sizes(answer)) <= things, row
        if not set(scenes[0].names) & set(scenes[1].names):
            assert all(_relation_holds(answer, scene) for scene in scenes), row


def test_differences_tell_the_first_picture_first() -> None:
    """The direction of a difference is its meaning: pictures are subtracted in that order."""
    for row in _of("difference"):
        first, second = _scene(row["caption"]), _scene(row["other_caption"])
        own = [name for _, name in _objects(row["answer"])]
        order = [name in second.names for name in own if (name in first.names) != (name in second.names)]
        assert order == sorted(order), row


ASSETS = Path(__file__).parents[3] / "components" / "students" / "assets"


def _read(name: str) -> list[dict[str, str]]:
    with (ASSETS / f"{name}.tsv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t", strict=True))


ABSENCES, UNITS = _read("teacher_absences"), _read("teacher_units")
UNKNOWN = {"a small basket"}
"""Foils of things that no drawing shows, so that the world's facts cannot tell."""
_scene_of = cache(_scene)


def test_there_are_enough_and_none_twice() -> None:
    assert (len(ABSENCES), len(UNITS)) == (150, 139)
    assert len({row["caption"] for row in ABSENCES}) == len(ABSENCES)
    assert len({(row["caption"], row["unit"]) for row in UNITS}) == len(UNITS)
    plain = {row["caption"] for row in _read("teacher")}
    assert {row["caption"] for row in [*ABSENCES, *UNITS]} <= plain


def _absence_faults(row: dict[str, str]) -> list[object]:
    caption, name, text = row["caption"], row["absent_object"], row["absence"]
    return [
        says_name(caption, name) or None,
        find_denial_fault(text, caption, name),
        find_fault(text.replace(name, " "), _scene_of(caption)),
        find_leak(text),
    ]


def _unit_faults(row: dict[str, str]) -> list[object]:
    scene: Scene = _scene_of(row["caption"])
    foil = None if row["unit_foil"] in UNKNOWN else find_part_fault(row["unit_foil"], scene)
    is_true = row["unit_foil"] not in UNKNOWN and foil in (None, "nothing")
    return [find_part_fault(row["unit"], scene), is_true or None, find_leak(row["unit"]), find_leak(row["unit_foil"])]


def test_every_absence_is_true_and_every_unit_true_with_a_false_foil() -> None:
    offenders = [(row, faults) for row in ABSENCES if any(faults := _absence_faults(row))]
    offenders += [(row, faults) for row in UNITS if any(faults := _unit_faults(row))]
    assert offenders == []
