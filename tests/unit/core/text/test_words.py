"""Texts are compared by their letters, and by their content words."""

from __future__ import annotations

from components.core.text import content_words, new_words, normalised


def test_normalised_ignores_case_punctuation_and_space() -> None:
    assert normalised(" A small_dog,  LEFT-of a CAT! ") == normalised("a small dog left of a cat")
    assert normalised("a small dog") != normalised("a small hog")


def test_content_words_are_distinct_and_new_ones_are_counted() -> None:
    assert content_words("The dog is on the left of a Dog, under no roof") == {"dog", "left", "under", "roof"}
    assert new_words("The hound, a hound on the scarlet ground", "a dog on red ground") == 2
    assert new_words("a dog", "a dog on red") == 0
