"""Labelled paraphrases: the file discloses no caption, and the benchmark counts what checks stop and let through."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.paraphrase_checks import run
from benchmarks.paraphrase_labels import Labelled, hidden, shown
from components.core.system.profiles import settings_with

CAPTION = "A dog with two red balls runs on the beach ."
TEXTS = st.text(st.characters(categories=("Lu", "Ll", "Zs", "Po"), max_codepoint=127), max_size=40)


@given(TEXTS, TEXTS)
def test_a_hidden_text_is_shown_again(text: str, caption: str) -> None:
    plain = " ".join(word if word.isupper() else word.lower() for word in text.split(" "))
    assert shown(hidden(plain, caption), caption) == plain


def test_every_check_of_the_table_is_scored() -> None:
    rows: list[tuple[str, str, str, Any]] = [
        ("paraphrase_1", CAPTION, "Two red balls are with a dog that runs on the beach.", "good"),
        ("paraphrase_2", "A dog runs.", "A dog runs.", "bad"),
        ("paraphrase_2", "Two red balls.", "A few crimson toys.", "bad"),
    ]
    labelled = [Labelled("1.jpg#0", row[0], CAPTION, *row[1:], "" if row[3] == "good" else "repeats") for row in rows]
    found = run(labelled, settings_with("flickr8k"))
    one = {"bad_let_through": 1, "good_stopped": 0}
    assert [found["checks"][name] for name in ("copies", "lost_number", "few_new_words")] == [one] * 3
    assert found["together"] == {"bad_let_through": 0, "good_stopped": 0}
    assert found["tried"]["few_new_words >= 1"] == one
    assert "fault" not in found["checks"]
