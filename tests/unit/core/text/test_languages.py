"""Languages are found and named; texts are compared by their letters, and by their content words."""

from __future__ import annotations

import pytest

from components.core.text import content_words, new_words, normalised
from components.core.text.languages import detected, identified, is_latin, language_name, word_count

GERMAN = [f"Ein {colour} Hund läuft über die {place} und trägt einen Ball" for colour in ("roter", "großer", "junger")
          for place in ("Wiese", "Straße", "Brücke")]  # fmt: skip
JAPANESE = ["赤い犬がソファの上で寝ている", "青い鳥が木の枝に止まっている", "白い猫が窓の外を見ている"]
ENGLISH = [f"A {colour} dog runs across the meadow with a ball" for colour in ("red", "large", "young")]


def test_languages_are_found_and_named_with_their_words() -> None:
    for texts, shares in [
        (GERMAN, {"de": 1.0}),
        (JAPANESE, {"ja": 1.0}),
        (ENGLISH, {"en": 1.0}),
        (GERMAN[:3] + ENGLISH, {"de": 0.5, "en": 0.5}),
        # One of ten is not a language of the data; short texts are not sure.
        (GERMAN + GERMAN + ENGLISH[:1], {"de": pytest.approx(18 / 19)}),
        (["dog", "Hund", ""], {}),
    ]:
        assert detected(texts) == shares
    assert [word_count(text) for text in ("a red dog", JAPANESE[0], "iPhone 15 ケース")] == [3, 7, 4]
    assert new_words("赤い犬が寝ている", "赤い犬が寝ている") == 0
    assert new_words("青い鳥が寝ている", "赤い犬が寝ている") >= 2
    assert content_words("Der Hund") == {"der", "hund"}
    assert (language_name("ja"), is_latin("ja"), is_latin("de")) == ("Japanese", False, True)
    assert identified("???") is None


def test_letters_and_content_words_are_compared() -> None:
    assert normalised(" A small_dog,  LEFT-of a CAT! ") == normalised("a small dog left of a cat")
    assert normalised("a small dog") != normalised("a small hog")
    assert content_words("The dog is on the left of a Dog, under no roof") == {"dog", "left", "under", "roof"}
    assert new_words("The hound, a hound on the scarlet ground", "a dog on red ground") == 2
    assert new_words("a dog", "a dog on red") == 0
