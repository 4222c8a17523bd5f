"""Sentences as words and numbers, and scores of captions, by hand where possible."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from components.core.system.errors import InputError
from components.experiments.parts.captioned_pairs import (
    EDGE,
    PAD,
    Vocabulary,
    caption_scores,
    has_java,
    scorers,
    split_words,
)

needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="METEOR and the tokenizer are Java programs")
SENTENCES = (
    "The two people aren't in the parking-lot any more.",
    "there is a white car by the building; it wasn't there before!",
    "The man's jacket is 2 meters away, and he can't see it?",
    "nothing has changed .",
    "they've gone (both of them) -- she'll be back...",
    "a person in a t-shirt cannot be seen , he left",
)


def test_words_are_in_lower_case_without_punctuation() -> None:
    words = ["it", "is", "n't", "red", "it", "'s", "blue-green", "3.5", "m"]
    assert split_words("  It isn’t RED, it's blue-green: 3.5 m! ") == words
    assert split_words(" . , -- ") == []


@needs_java
def test_words_are_those_of_the_tokenizer_of_image_captioning() -> None:
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


def test_cider_counts_rare_words_and_is_ten_for_the_reference_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # Without Java.
    references = [["the dog is gone now"], ["the cat is here now"], ["one bird flew off today"]]
    same = caption_scores([one for (one,) in references], references)
    assert same.cider == pytest.approx([10, 10, 10])
    assert same.rouge_l.tolist() == [1, 1, 1]
    assert (same.bleu_4, same.meteor) == (pytest.approx(1), None)
    found = caption_scores(["the now", "the cat is here now", ""], references)
    assert 0 < found.cider[0] < 1
    assert (found.cider[2], found.rouge_l[2]) == (0, 0)


@pytest.mark.slow
@needs_java
def test_meteor_is_one_for_the_reference_itself() -> None:
    assert has_java()
    references = [["the dog is gone"], ["a man walks in"]]
    assert caption_scores([one for (one,) in references], references).meteor == pytest.approx(1.0)


def test_a_failing_java_a_missing_package_and_missing_references(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "java"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="METEOR's Java program ended without a score"):
        caption_scores(["a"], [["a"]])
    with pytest.raises(ValueError, match="needs a reference"):
        caption_scores(["a", "b"], [["a"], []])
    for module in [name for name in sys.modules if name.startswith("pycocoevalcap")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "pycocoevalcap", None)
    with pytest.raises(InputError, match=r"pip install cliptune\[captioning\]"):
        scorers()
