"""Near duplicates: exactly the rows whose pairs of words are those of an earlier kept row, whatever the shards."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.validation.checks import near_duplicates
from components.validation.checks.near_duplicates import NearDuplicates

WORDS = [f"word{number}" for number in range(40)]


def _pairs(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return set(pairwise(words)) if len(words) > 1 else {tuple(words)} if words else set()


def _expected(texts: Sequence[str], threshold: float) -> list[int]:
    """The definition itself, each text with every kept one."""
    kept: list[set[tuple[str, ...]]] = []
    found = []
    for row, text in enumerate(texts):
        mine = _pairs(text)
        if mine and any(len(mine & other) >= threshold * len(mine | other) for other in kept):
            found.append(row)
        elif mine:
            kept.append(mine)
    return found


def _found(texts: Sequence[str], threshold: float, shard: int = 1000) -> list[int]:
    with NearDuplicates(threshold) as near:
        at_once: list[int] = []
        for start in range(0, len(texts), shard):
            rows = range(start, min(start + shard, len(texts)))
            at_once += near.add(rows, texts[start : start + shard]).tolist()
        assert near.duplicates().tolist() == at_once
    return at_once


def _texts(seed: int, count: int) -> list[str]:
    """Texts of which about half are an earlier one with up to two words changed, added or dropped."""
    rng = random.Random(seed)
    texts: list[str] = []
    while len(texts) < count:
        words = rng.choice(texts).split() if texts and rng.random() < 0.5 else rng.choices(WORDS, k=rng.randint(8, 16))
        for _ in range(rng.randint(0, 2)):
            place = rng.randrange(len(words))
            words[place : place + rng.randint(0, 1)] = rng.choices(WORDS, k=rng.randint(0, 1))
        texts.append(" ".join(words))
    return texts


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["a small dog on a red chair", "A small dog, on a RED chair!"], [1]),
        (["a small dog on a red chair in the sun", "a small dog on a red chair in the sun today"], [1]),
        (["a small dog on a red chair", "a large cat under a blue table"], []),
        (["a dog left of a cat", "a cat left of a dog"], []),
        (["dog", "Dog.", "cat"], [1]),
        (["", "!!", ""], []),
        (["one two\nthree four", "one two three four"], []),
        (["one two\nthree four", "One two.\nThree four."], [1]),
    ],
)
def test_what_repeats_an_earlier_text(texts: list[str], found: list[int]) -> None:
    assert _found(texts, 0.8) == found


def test_a_row_is_compared_with_kept_ones_alone() -> None:
    words = [f"word{number}" for number in range(20)]
    chain = [" ".join(words[start : start + 12]) for start in (0, 1, 2)]
    assert _expected(chain, 0.8) == [1]
    assert _found(chain, 0.8) == [1], "the third is near the second, which repeats the first itself"
    assert _found(chain, 0.8, shard=1) == [1]


def test_the_numbers_are_those_of_the_caller() -> None:
    with NearDuplicates(0.9) as near:
        assert near.add([70, 80], ["a red dog", "a red dog"]).tolist() == [80]
        assert near.add([5, 90], ["a blue dog", "a red dog"]).tolist() == [90]
        assert near.add([], []).tolist() == []
        assert near.duplicates().tolist() == [80, 90]


@pytest.mark.parametrize("threshold", [0.6, 0.8, 0.95])
def test_nearly_all_are_found_and_nothing_else(threshold: float) -> None:
    texts = _texts(3, 700)
    found, expected = set(_found(texts, threshold)), set(_expected(texts, threshold))
    assert len(expected) > 50
    assert len(found & expected) >= 0.97 * len(expected)
    # A row that should have gone and stays can make a later one go, nothing else can.
    assert len(found - expected) <= 0.01 * len(texts)


def test_shards_and_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = _texts(5, 200)
    whole = _found(texts, 0.8)
    assert whole
    assert _found(texts, 0.8, shard=37) == whole
    monkeypatch.setattr(near_duplicates, "_BLOCK", 11)
    assert _found(texts, 0.8) == whole


@settings(max_examples=8, deadline=None)
@given(st.lists(st.text("ab \u00e9\ud800", max_size=12), max_size=12))
def test_with_a_threshold_of_one_only_the_same_words_repeat(texts: list[str]) -> None:
    seen: set[frozenset[tuple[str, ...]]] = set()
    expected = []
    for row, text in enumerate(texts):
        mine = frozenset(_pairs(" ".join("".join(x if x.isalnum() else " " for x in text).split())))
        if mine and mine in seen:
            expected.append(row)
        seen.add(mine)
    assert _found(texts, 1.0) == expected


def test_the_temporary_file_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with NearDuplicates(0.8) as near:
        near.add([0], ["a red dog"])
        assert list(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []
