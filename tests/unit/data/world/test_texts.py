"""Sentences about scenes: true ones are true of the facts, and false ones false in one thing."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from components.core.settings import Settings
from components.core.tables.files import content_hash
from components.core.tables.records import COMPARISONS, NEGATION_QUERIES
from components.data import prepare
from components.data.sources.synthetic import SOURCE
from components.data.world.alt_text import alt_text
from components.data.world.difference_text import comparison_rows, contrast, difference_text
from components.data.world.evaluation_text import CUES, evaluation_text, negation_text
from components.data.world.fact_checks import find_fault
from components.data.world.lexicon import TIERS, load_lexicon, plural, with_article, word_pattern
from components.data.world.likeness import changed, half_truth_rows, likeness_rows, shared_facts
from components.data.world.scenes import POSITIONS, Scene, Thing, draw_scenes

WORDS = {"no": r"\bno\b", "not": r"\bnot\b", "without": r"\bwithout\b", "not_but": r"\bnot .* but\b"}
ANY_CUE = re.compile(r"\b(?:no|not|without)\b", re.IGNORECASE)


@cache
def _scenes() -> tuple[Scene, ...]:
    return tuple(scene for _, scene in draw_scenes(11, {"train": 1, "val": 1, "test": 250}))


def _names_shown(text: str) -> set[str]:
    """Objects that `text` names by their common word; of two words at one place the longer counts."""
    found = set()
    for name in sorted(load_lexicon().objects, key=len, reverse=True):
        if word_pattern(name).search(text):
            found.add(name)
            text = word_pattern(name).sub("~", text)
    return found


def _affirmed(negation: str) -> str:
    """The sentence that a negation with `no` or `not` denies."""
    text = re.sub(r"\bno ", "", negation, flags=re.IGNORECASE)
    text = re.sub(r"\bnot (?:a single |any )", "", text, flags=re.IGNORECASE)
    return text.replace("does not show", "shows").replace("does show any", "shows")


def _negations(cue: str) -> Iterator[tuple[Scene, str, str]]:
    rng = random.Random(f"cue-{cue}")
    for scene in _scenes():
        yield scene, *negation_text(scene, rng, cue)


@pytest.mark.parametrize("cue", CUES)
def test_captions_are_true_and_negations_have_their_cue(cue: str) -> None:
    for scene, caption, negation in _negations(cue):
        assert find_fault(caption, scene) is None, caption
        assert not ANY_CUE.search(caption)
        assert len(ANY_CUE.findall(negation)) == 1, negation
        assert re.search(WORDS[cue], negation, re.IGNORECASE), negation
        assert caption != negation


@pytest.mark.parametrize("cue", ["no", "not"])
def test_the_denied_sentence_is_true(cue: str) -> None:
    for scene, _, negation in _negations(cue):
        affirmed = _affirmed(negation)
        assert not ANY_CUE.search(affirmed), affirmed
        # To deny a group's things at all denies that there are so many.
        fault = "count" if scene.kind == "group" else None
        assert find_fault(affirmed, scene) == fault, (negation, affirmed)


def test_left_out_and_replacing_objects_are_those_of_the_scene() -> None:
    for scene, _, negation in _negations("without"):
        head, left_out = negation.split(" without ")
        (name,) = _names_shown(left_out)
        assert name in scene.names, negation
        assert _names_shown(head) == set(scene.names) - {name}, negation
        if scene.second is None:
            continue
        # "A large cat without a small dog left of it": with the pronoun's own words the part left out is a caption.
        owner = next(thing for thing in (scene.first, scene.second) if thing.name != name)
        caption = re.sub(r"\bit\b", with_article(f"{owner.size} {owner.name}"), left_out, count=1)
        assert find_fault(f"On {scene.colour}, {caption}", scene) is None, negation
    for scene, _, negation in _negations("not_but"):
        denied, absent = re.search(r"not (.*) but ((?:an? |\w+ )\w+ ?.*)", negation, re.IGNORECASE).groups()  # type: ignore[union-attr]
        (name,) = _names_shown(denied)
        assert name in scene.names, negation
        (other,) = _names_shown(absent) - set(scene.names)
        back = negation.replace(f"not {denied} but ", "").replace(f"Not {denied} but ", "")
        number = plural if scene.kind == "group" else str
        assert find_fault(back.replace(number(other), number(name)), scene) is None, negation


@pytest.mark.parametrize("tier", TIERS)
def test_paraphrases_are_true(tier: str) -> None:
    rng = random.Random(f"tier-{tier}")
    for scene in _scenes():
        text = evaluation_text(scene, rng, tier)  # type: ignore[arg-type]
        assert find_fault(_in_known_words(text.paraphrase), scene) is None, text.paraphrase


def _in_known_words(text: str) -> str:
    """`text` with words of the last tier, which the check of facts does not know, replaced by common ones."""
    lexicon = load_lexicon()
    for concept in (*lexicon.objects.values(), *lexicon.attributes.values()):
        if "unseen" in concept.words:
            word, common = concept.words["unseen"], concept.words["common"]
            text = word_pattern(plural(word)).sub(plural(common), text) if word.isalpha() else text
            text = word_pattern(word).sub(common, text)
    return text


SINGLE = Scene("single", "red", Thing("dog", "small"), position="center")


def test_alt_texts_are_true_in_all_words_and_from_both_sides() -> None:
    def texts(share: float, count: int) -> list[str]:
        return [alt_text(SINGLE, random.Random(seed), share) for seed in range(count)]

    assert texts(0.25, 40) == texts(0.25, 40)
    assert all("dog" in text for text in texts(0, 40))
    assert all("pup" in text for text in texts(1, 40))
    assert 0.15 < sum("pup" in text for text in texts(0.25, 400)) / 400 < 0.35
    later = [word_pattern(word) for tier in ("paraphrase", "unseen") for word in load_lexicon().tier_words(tier)]
    rng = random.Random(0)
    for _, scene in draw_scenes(1, {"train": 200, "val": 1, "test": 1}):
        text = alt_text(scene, rng, 0.5)
        assert not [pattern.pattern for pattern in later if pattern.search(text)], text
        assert scene.kind == "pair" or find_fault(text.replace("_", " "), scene) is None, text
    scene = Scene("pair", "red", Thing("dog", "small"), Thing("cat", "large"), relation="left")
    texts = [alt_text(scene, random.Random(seed), 0.0).replace("_", " ") for seed in range(200)]
    assert any("small dog left of large cat" in text for text in texts)
    assert any("large cat right of small dog" in text for text in texts)
    assert not any("large cat left of" in text or "small dog right of" in text for text in texts)


Row = tuple[str, ...]


@cache
def _world() -> tuple[dict[str, Scene], tuple[Row, ...]]:
    drawn = draw_scenes(5, {"train": 1, "val": 1, "test": 240})
    scenes = {f"picture {number}": scene for number, (split, scene) in enumerate(drawn) if split == "test"}
    return scenes, tuple(comparison_rows(list(scenes.items()), random.Random(3)))


def _described(text: str, words: Iterable[str]) -> dict[str, str]:
    """Which of `words` describes the picture called `first`, and which the `second`."""
    body = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    found = re.findall(rf"(?<!\w)(?:{body})(?!\w)", text)
    assert len(found) == 2, text
    return dict(zip(sorted(("first", "second"), key=text.index), found, strict=True))


def _size_is_true(text: str, first: Scene, second: Scene) -> bool:
    after, wanted = text.split("larger ", 1)[1], {"larger": "large", "smaller": "small"}
    name = max((name for name in load_lexicon().objects if re.match(rf"{name}\b", after)), key=len)
    things = [thing for scene in (first, second) for thing in (scene.first, scene.second) if thing is not None]
    sizes = [thing.size for thing in things if thing.name == name]
    said = _described(text, ("larger", "smaller"))
    return sizes == [wanted[said["first"]], wanted[said["second"]]]


def _background_is_true(text: str, first: Scene, second: Scene) -> bool:
    return _described(text, load_lexicon().colours) == {"first": first.colour, "second": second.colour}


def _position_is_true(text: str, first: Scene, second: Scene) -> bool:
    return _described(text, POSITIONS) == {"first": first.position, "second": second.position}


def _object_is_true(text: str, first: Scene, second: Scene) -> bool:
    articled = [f"{article} {name}" for name in load_lexicon().objects for article in ("a", "an")]
    shown = {picture: words.split(" ", 1)[1] for picture, words in _described(text, articled).items()}
    here = shown["first"] in first.names and shown["first"] not in second.names
    return here and shown["second"] in second.names and shown["second"] not in first.names


TRUTH = {
    "size": _size_is_true, "background": _background_is_true, "position": _position_is_true, "object": _object_is_true,
}  # fmt: skip


def test_true_differences_are_true_and_false_ones_false() -> None:
    scenes, rows = _world()
    for first, second, true, false, kind, answer in rows:
        assert TRUTH[kind](true, scenes[first], scenes[second]), (true, scenes[first], scenes[second])
        assert not TRUTH[kind](false, scenes[first], scenes[second]), (false, scenes[first], scenes[second])
        assert TRUTH[kind](false, scenes[second], scenes[first]), "the false one is true of the pictures exchanged"
        assert min(true.index("first"), true.index("second")) == true.index(answer)


def test_differences_need_scenes_that_differ() -> None:
    one = Scene("single", "red", Thing("dog", "small"), position="center")
    assert comparison_rows([], random.Random(0)) == []
    assert comparison_rows([("a", one), ("b", one)], random.Random(0)) == []
    group = Scene("group", "red", Thing("dog", "small"), count="three")
    large = Scene("single", "red", Thing("dog", "large"), position="center")
    small = Scene("single", "red", Thing("dog", "small"), position="center")
    assert contrast("size", large, group, random.Random(0)) is None
    assert contrast("size", large, small, random.Random(0)) == ("dog", "dog")
    assert contrast("size", small, large, random.Random(0)) is None
    texts = {difference_text("background", ("red", "blue"), random.Random(seed), "second") for seed in range(9)}
    frames = (
        "Of the two pictures, the {} is on red and the {} is on blue.",
        "Compared side by side, the {} picture has a red background, the {} has a blue one.",
    )
    expected = {(frame.format("second", "first"), frame.format("first", "second")) for frame in frames}
    assert texts == expected


PAIR = Scene("pair", "red", Thing("dog", "small"), Thing("cat", "large"), "left")
ALONE = Scene("single", "red", Thing("dog", "small"), position="center")
GROUP = Scene("group", "red", Thing("dog", "small"), count="two")


@cache
def _many_scenes() -> tuple[Scene, ...]:
    return tuple(scene for split, scene in draw_scenes(3, {"train": 1, "val": 1, "test": 600}) if split == "test")


@cache
def _alike() -> list[tuple[str, str, float, str]]:
    return likeness_rows(_many_scenes(), random.Random(5))


@pytest.mark.parametrize(
    ("scene", "parts", "share"),
    [
        # Six facts: background, two objects, their sizes, and where the one stands of the other.
        (PAIR, (), 1), (PAIR, ("colour",), 5 / 7), (PAIR, ("relation",), 5 / 7), (PAIR, ("second size",), 5 / 7),
        (PAIR, ("first size", "second size"), 4 / 8), (PAIR, ("first",), 3 / 9), (PAIR, ("first", "second"), 1 / 11),
        (PAIR, ("first", "second", "colour"), 0),
        # Four: background, object, its size, its place.
        (ALONE, ("position",), 3 / 5), (ALONE, ("first",), 1 / 7),
        # Three, for sentences do not tell the size of a group's things.
        (GROUP, ("count",), 2 / 4), (GROUP, ("first",), 1 / 5),
    ],
)  # fmt: skip
def test_shares_by_hand(scene: Scene, parts: tuple[str, ...], share: float) -> None:
    for seed in range(5):
        other = changed(scene, parts, random.Random(seed))
        assert shared_facts(scene, other) == shared_facts(other.mirrored(), scene) == pytest.approx(share)


def test_a_share_of_one_is_the_same_scene_and_less_is_not() -> None:
    checked = 0
    for scene, (first, second, share, tier) in zip(_many_scenes(), _alike(), strict=True):
        # The check of facts does not know words of the last tier.
        if tier != "unseen":
            assert find_fault(first, scene) is None, first
            assert (find_fault(second, scene) is None) == (share == 1), second
            checked += 1
    assert checked > 300


@cache
def _truths() -> list[tuple[Scene, str, str, str, str]]:
    scenes = {str(number): scene for number, scene in enumerate(_many_scenes()[:300])}
    rows = half_truth_rows(list(scenes.items()), random.Random(5))
    return [(scenes[row[0]], *row[1:]) for row in rows]  # type: ignore[misc]


def test_half_truths_are_false_in_one_thing_and_full_ones_true() -> None:
    (red, center) = half_truth_rows([("i", ALONE)], random.Random(0))
    assert (red[0], red[4], center[4]) == ("i", "background", "position")
    for row, truth in ((red, "a small dog on a red background"), (center, "a small dog in the center")):
        assert "small dog" in row[1]
        assert row[3] in {f"Anyone can make out {truth} here.", f"Plain to see is {truth}."}
        assert row[2] != row[3]
        assert row[1].split()[:3] == row[2].split()[:3] == row[3].split()[:3]
    for scene, truth, half, full, kind in _truths():
        assert _shown(truth, scene) == 1, truth
        assert len(truth) < min(len(half), len(full))
        assert _shown(full, scene) == 1 + (kind in {"object", "relation"}), full
        assert _shown(half, scene) == 1 + (kind == "relation"), half
        if kind in {"relation", "position"}:
            # The check of facts requires the background, too.
            background = f" The background is {scene.colour}."
            assert find_fault(full + background, scene) is None, full
            assert find_fault(half + background, scene) == kind, half
        if kind == "background":
            assert f"on a {scene.colour} background" in full
            assert f"on a {scene.colour} background" not in half


def _shown(text: str, scene: Scene) -> int:
    return sum(bool(word_pattern(name).search(text)) for name in scene.names)


HASHES = {
    "pairs": "71fadc42da884892",
    "paraphrase_queries": "0c003a3b221789b0",
    "caption_queries": "b1a330edf098fc04",
    "swaps": "d5e773604e52cf1e",
    "labels": "018530556d309b0d",
    "negations": "4f7e81e32759ab70",
    "comparisons": "8ba56bc1a00b31c8",
    "half_truths": "b0d3772a8dcd78f8",
    "text_pairs": "b4e07dc887b2dd10",
}


def test_texts_are_those_of_the_seed_and_never_change(raw_params: dict[str, Any]) -> None:
    """Other texts would train all encoders of the synthetic data set anew, and change every figure about them."""
    raw_params["prepare"] |= {"counts": {"train": 200, "val": 20, "test": 200}, "rare_word_share": 0.04}
    raw_params["dataset"]["seed"] = 0
    settings = Settings.model_validate(raw_params)
    pairs = list(SOURCE.pairs(settings))
    tests = [pair for pair in pairs if pair.split == "test"]
    # Ids are hashes of drawings, whose compression is that of a library.
    numbers = {pair.image_id: number for number, pair in enumerate(tests)}
    made: dict[str, list[Any]] = {"pairs": [(pair.split, pair.caption, pair.facts) for pair in pairs]}
    for name, (_, rows) in SOURCE.evaluation(settings, tests).items():
        made[name] = [[numbers.get(value, value) for value in row.values()] for row in rows.to_pylist()]
    assert [row[0] for row in made["negations"]] == list(range(len(tests)))
    assert {name: content_hash(json.dumps(rows))[:16] for name, rows in made.items()} == HASHES


@pytest.mark.parametrize("test", [1, 2])
def test_a_few_pictures_are_enough_to_prepare(raw_params: dict[str, Any], tmp_path: Path, test: int) -> None:
    raw_params["prepare"]["counts"] = {"train": 1, "val": 1, "test": test}
    prepare.run(Settings.model_validate(raw_params), tmp_path / "pairs", tmp_path / "evaluation")
    assert NEGATION_QUERIES.read(tmp_path / "evaluation" / "negations.parquet").num_rows == test
    rows = COMPARISONS.read(tmp_path / "evaluation" / "comparisons.parquet").num_rows
    assert test > 1 or rows == 0
