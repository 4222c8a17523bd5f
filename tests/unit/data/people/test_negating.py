"""Rules that make a caption false by one word, on invented captions, and where they keep their hands off."""

from __future__ import annotations

import pytest

from components.data.people.negating import CUES, negated


@pytest.mark.parametrize(
    ("cue", "caption", "negation"),
    [
        ("no", "A brown dog digs a hole .", "No brown dog digs a hole ."),
        ("no", "The very old man reads", "No very old man reads"),
        ("no", "three young girls sing .", "No young girls sing ."),
        ("no", "An empty street at night .", None),
        ("no", "A lamp of a man who reads .", "No lamp of a man who reads ."),
        ("no", "Dogs dig holes .", None),
        ("not", "A man is reading and two dogs are sleeping .", "A man is not reading and two dogs are sleeping ."),
        ("not", "Two girls are singing .", "Two girls are not singing ."),
        ("not", "A man is tall .", None),
        ("not", "A man reads .", None),
        (
            "without",
            "A girl with an umbrella and a boy with a hat .",
            "A girl without an umbrella and a boy with a hat .",
        ),
        ("without", "A boy sings with his sister .", "A boy sings without his sister ."),
        ("without", "A table covered with a cloth .", None),
        ("without", "A girl with red shoes .", None),
        ("without", "A girl walks along with a dog .", None),
    ],
)
def test_each_cue_has_its_rule(cue: str, caption: str, negation: str | None) -> None:
    assert negated(caption, cue) == negation


@pytest.mark.parametrize("cue", CUES)
@pytest.mark.parametrize("caption", ["", " ", ".", "with", "no dog is not running without a stick"])
def test_odd_captions_are_left_alone(cue: str, caption: str) -> None:
    assert negated(caption, cue) is None
