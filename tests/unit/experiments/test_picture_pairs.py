"""Sentences become words as the evaluation of captions wants them, and numbers become sentences again."""

from __future__ import annotations

import shutil

import pytest

from components.experiments.parts.picture_pairs import EDGE, MAX_WORDS, PAD, Vocabulary, split_words

SENTENCES = (
    "The two people aren't in the parking-lot any more.",
    "there is a white car by the building; it wasn't there before!",
    "The man's jacket is 2 meters away, and he can't see it?",
    "nothing has changed .",
    "they've gone (both of them) -- she'll be back...",
    "a person in a t-shirt cannot be seen , he left",
)


def test_words_are_in_lower_case_without_punctuation() -> None:
    assert split_words("  It isn’t RED, it's blue-green: 3.5 m! ") == [
        "it", "is", "n't", "red", "it", "'s", "blue-green", "3.5", "m",
    ]  # fmt: skip
    assert split_words(" . , -- ") == []


@pytest.mark.skipif(shutil.which("java") is None, reason="the reference is a Java program")
def test_they_are_those_of_the_tokenizer_of_image_captioning() -> None:
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer  # type: ignore[import-untyped]

    theirs = PTBTokenizer().tokenize({row: [{"caption": one}] for row, one in enumerate(SENTENCES)})
    # It writes brackets as -lrb- and strips them only in capitals.
    expected = [[word for word in theirs[row][0].split() if word not in ("-lrb-", "-rrb-")] for row in range(6)]
    assert [split_words(one) for one in SENTENCES] == expected


def test_numbers_are_closed_and_filled_up_and_give_the_sentence_back() -> None:
    vocabulary = Vocabulary.of(["A car left.", "no car"])
    assert vocabulary.words == ("a", "car", "left", "no")
    assert len(vocabulary) == 6
    rows = vocabulary.numbers(["no car", "a new car left", ""])
    assert rows.tolist() == [[5, 3, EDGE, PAD], [2, 3, 4, EDGE], [EDGE, PAD, PAD, PAD]]
    assert [vocabulary.sentence(row) for row in rows.tolist()] == ["no car", "a car left", ""]


def test_long_sentences_are_cut() -> None:
    vocabulary = Vocabulary.of(["very"])
    assert vocabulary.numbers(["very " * 1000]).shape == (1, MAX_WORDS + 1)
