"""The teacher sets: written by hand, in plain sentences, and true to the scenes or captions that they are about."""

from __future__ import annotations

import csv
import re
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from components.captions.validation.rules.general import says_name
from components.captions.validation.rules.numbers_and_names import find_lost_name, find_lost_number
from components.captions.validation.rules.tables import CUES, find_denial_fault
from components.core.text import content_words, new_words, normalised
from components.data.world.fact_checks import find_fault, find_part_fault
from components.data.world.lexicon import load_lexicon, plural
from components.data.world.scenes import COUNTS, INVERSE, POSITIONS, RELATIONS, SIZES, Scene, Thing

REPO = Path(__file__).parents[4]
ASSETS = REPO / "components" / "captions" / "students" / "assets"
FLICKR8K = REPO.parent / "shared" / "data" / "flickr8k" / "Flickr8k.token.txt"
EDITS, CLASSES, SIZES_SET = "teacher_edits", "teacher_classes", "teacher_sizes"
PHOTOS, PHOTO_EDITS = "photographs/teacher", "photographs/teacher_edits"
SETS: dict[str, tuple[dict[str, int], int, int]] = {
    EDITS: ({"negate_semclip": 150, "negate_terms": 130, "swap_negative": 160, "difference": 200}, 3, 30),
    SIZES_SET: ({"difference": 100}, 3, 30),
    CLASSES: ({"class_description": 100, "class_difference": 100}, 14, 25),
    PHOTOS: ({"": 600}, 3, 30),
    PHOTO_EDITS: ({"negate_semclip": 150, "difference": 150}, 3, 30),
}
"""Least number of rows of each task, and least and largest number of words of an answer."""
MIN_DIFFERENCE_LETTERS = 60
NOISE = re.compile(r"IMG|photo|stock|vector|clipart|\bbg\b|buy now|download|[#@_|\[\]<>\"\t]|\.(?:png|jpg)|\d")
CUE = re.compile(
    r"\b(?:not?|never|none|nor|neither|nothing|nobody|nowhere|zero|without|instead|hardly|un(?:like|true)|fails?|refuses"
    r"|lack(?:s|ing)?|absent|missing|gone|empty|bare|free|false|far|cannot|can't|\w+n't|nonexistent|excluded)\b",
    re.IGNORECASE,
)
TERM = re.compile(r"\b(?:no|not|without)\b", re.IGNORECASE)
MOST_ALIKE = 0.7
"""Words that two captions share, of all of either: people's captions of one photograph seldom have as many."""

Row = dict[str, str]


@cache
def _rows(name: str) -> tuple[Row, ...]:
    with (ASSETS / f"{name}.tsv").open(encoding="utf-8", newline="") as stream:
        return tuple(csv.DictReader(stream, delimiter="\t", strict=True))


def _of(task: str, name: str = EDITS) -> list[Row]:
    return [row for row in _rows(name) if row["task"] == task]


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


def _words(text: str, names: tuple[str, ...]) -> list[str]:
    """The concepts of `names` in `text`, outside of the names of objects."""
    for match, _ in _objects(text):
        text = text[: match.start()] + "~" * len(match.group()) + text[match.end() :]
    return [name for _, name in _mentions(text, names)]


def _sizes(text: str) -> list[tuple[str, str]]:
    """Every (object, size) of `text` where the size stands right before the object."""
    before = [(name, " ".join(text[: match.start()].split()[-1:]).lower()) for match, name in _objects(text)]
    return [(name, size) for name, word in before for size in _words(word, SIZES)]


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


def _relation_holds(text: str, scene: Scene) -> bool:
    """Whether the relation between the scene's two objects, where `text` has one, is the scene's."""
    found = {name: match for match, name in _objects(text) if name in scene.names}
    if len(found) < 2:
        return True
    near, far = sorted(found, key=lambda name: found[name].start())
    between = _words(text[found[near].end() : found[far].start()], RELATIONS)
    wanted = scene.relation if near == scene.first.name else INVERSE[scene.relation]
    return between in ([], [wanted])


@pytest.mark.parametrize("name", SETS)
def test_rows_are_many_different_and_answered_in_short_plain_sentences(name: str) -> None:
    wanted, fewest, most = SETS[name]
    counts = Counter(row.get("task", "") for row in _rows(name))
    assert set(counts) == set(wanted)
    assert all(counts[task] >= count for task, count in wanted.items()), counts
    answers = ("answer",) if name != PHOTOS else ("paraphrase_1", "paraphrase_2")
    questions = [column for column in _rows(name)[0] if column not in ("task", *answers)]
    for columns in (questions, *([column] for column in answers)):
        texts = Counter((row.get("task"), *(normalised(row[column]) for column in columns)) for row in _rows(name))
        assert texts.most_common(1)[0][1] == 1, texts.most_common(3)
    for row in _rows(name):
        for answer in (row[column] for column in answers):
            assert answer.isascii(), answer
            assert answer == " ".join(answer.split()), answer
            assert fewest <= len(answer.split()) <= most, answer
            assert re.fullmatch(r"[A-Z][^|\"\t]*[.?]", answer), answer
            assert name in (PHOTOS, PHOTO_EDITS) or not NOISE.search(answer), answer


def test_classes_are_objects_of_the_dataset_some_stay_unseen_and_answers_name_them() -> None:
    objects, described = set(load_lexicon().objects), {row["class_name"] for row in _of("class_description", CLASSES)}
    assert described <= objects
    assert len(objects - described) >= 25
    pairs = [(row["class_name"], row["other_class_name"]) for row in _of("class_difference", CLASSES)]
    assert {name for pair in pairs for name in pair} == described, "a class without description must not be compared"
    for row in _rows(CLASSES):
        names = list(filter(None, (row["class_name"], row["other_class_name"])))
        assert len(set(names)) == 1 + (row["task"] == "class_difference"), row
        assert all(says_name(row["answer"], name) for name in names), row


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


def test_swaps_are_false_of_their_scene_and_name_the_same_things() -> None:
    for row in _of("swap_negative"):
        scene = _scene(row["caption"])
        assert find_fault(row["answer"], scene) is not None, row
        assert {name for _, name in _objects(row["answer"])} == set(scene.names), row
        assert _colours(row["answer"]) == {scene.colour}, row
        assert not CUE.search(row["answer"]), row


def test_differences_are_true_of_both_pictures_and_name_the_first_one_first() -> None:
    """The direction of a difference is its meaning: pictures are subtracted in that order."""
    for row in (*_of("difference"), *_of("difference", SIZES_SET)):
        answer, scenes = row["answer"], [_scene(row["caption"]), _scene(row["other_caption"])]
        assert len(answer) >= MIN_DIFFERENCE_LETTERS, row
        assert scenes[0].canonical() != scenes[1].canonical(), row
        named, (first, second) = [name for _, name in _objects(answer)], [set(scene.names) for scene in scenes]
        assert first & set(named), row
        assert second & set(named), row
        assert set(named) <= first | second, row
        assert _colours(answer) <= {scene.colour for scene in scenes}, row
        things = {(thing.name, thing.size) for scene in scenes for thing in (scene.first, scene.second) if thing}
        assert set(_sizes(answer)) <= things, row
        order = [name in second for name in named if (name in first) != (name in second)]
        assert order == sorted(order), row
        if not first & second:
            assert all(_relation_holds(answer, scene) for scene in scenes), row


def test_every_absence_is_true_and_every_unit_true_with_a_false_foil() -> None:
    absences, units = _rows("teacher_absences"), _rows("teacher_units")
    assert len({row["caption"] for row in absences}) == 150
    assert len({(row["caption"], row["unit"]) for row in units}) == 139
    assert {row["caption"] for row in [*absences, *units]} <= {row["caption"] for row in _rows("teacher")}
    for row in absences:
        caption, name, text = row["caption"], row["absent_object"], row["absence"]
        assert not says_name(caption, name), row
        assert find_denial_fault(text, caption, name) is None, row
        assert find_fault(text.replace(name, " "), _scene(caption)) is None, row
    for row in units:
        scene, foil = _scene(row["caption"]), row["unit_foil"]
        assert find_part_fault(row["unit"], scene) is None, row
        # No scene shows a basket, so that facts cannot decide.
        assert foil == "a small basket" or find_part_fault(foil, scene) not in (None, "nothing"), row


def test_paraphrases_keep_numbers_and_names_and_bring_new_words() -> None:
    for row in _rows(PHOTOS):
        caption, first, second = row.values()
        for text, source in ((first, caption), (second, first), (second, caption)):
            assert find_lost_number(text, source) is None, row
            assert find_lost_name(text, source) is None, row
            assert normalised(text) != normalised(source), row
        assert min(new_words(second, first), new_words(second, caption)) >= 2, row


def test_edits_of_photographs_deny_or_compare_both_captions_and_name_the_first_one_first() -> None:
    assert [row for row in _of("negate_semclip", PHOTO_EDITS) if not CUES.search(row["answer"])] == []
    for row in _of("difference", PHOTO_EDITS):
        answer, one, other = (content_words(row[name]) for name in ("answer", "caption", "other_caption"))
        assert answer & (one - other), row
        assert answer & (other - one), row
        assert len(row["answer"]) >= MIN_DIFFERENCE_LETTERS, row
        places = re.findall(r"\b(?:first|second)\b", row["answer"])
        assert places == sorted(places), row


@pytest.mark.skipif(not FLICKR8K.is_file(), reason=f"{FLICKR8K} is absent: nothing to compare the captions with")
def test_no_text_is_a_caption_of_flickr8k_or_nearly_one() -> None:
    rows = (*_rows(PHOTOS), *_rows(PHOTO_EDITS))
    texts = [text for row in rows for column, text in row.items() if text and column != "task"]
    published = [line.partition("\t")[2] for line in FLICKR8K.read_text("utf-8").split("\n")]
    counter = CountVectorizer(binary=True, token_pattern=r"[^\W_]+").fit(texts + published)
    own, theirs = counter.transform(texts), counter.transform(published)
    sizes = np.asarray(own.sum(1)), np.asarray(theirs.sum(1)).T
    near = []
    for start in range(0, len(texts), 100):
        shared = (own[start : start + 100] @ theirs.T).toarray()
        alike = shared / (sizes[0][start : start + 100] + sizes[1] - shared)
        near += [texts[start + row] for row in np.flatnonzero(alike.max(1) > MOST_ALIKE)]
    assert near == []
