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
    made = [
        _labelled("paraphrase_1", CAPTION, "Two red balls are with a dog that runs on the beach.", "good"),
        _labelled("paraphrase_2", "A dog runs.", "A dog runs.", "bad"),
        _labelled("paraphrase_2", "Two red balls.", "A few crimson toys.", "bad"),
    ]
    found = run(made, settings_with("flickr8k"))
    assert found["checks"]["copies"] == {"bad_let_through": 1, "good_stopped": 0}
    assert found["checks"]["lost_number"] == {"bad_let_through": 1, "good_stopped": 0}
    assert found["checks"]["few_new_words"] == {"bad_let_through": 1, "good_stopped": 0}
    assert found["together"] == {"bad_let_through": 0, "good_stopped": 0}
    assert found["tried"]["few_new_words >= 1"] == {"bad_let_through": 1, "good_stopped": 0}
    assert "fault" not in found["checks"]


def _labelled(task: str, source: str, answer: str, label: Any) -> Labelled:
    return Labelled("1.jpg#0", task, CAPTION, source, answer, label, "" if label == "good" else "repeats")
