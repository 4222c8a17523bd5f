"""Prompt tasks ask what the paper asks and take answers apart without raising."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.captions.tasks import find_task
from components.errors import InputError


def test_the_questions_are_the_papers() -> None:
    first = find_task("paraphrase_1").messages("a cake plate")
    second = find_task("paraphrase_2").messages("a cake plate")
    assert first[-1]["content"].endswith('"a cake plate" concisely while preserving the meaning.')
    assert "avoiding use of existing words" in second[-1]["content"]
    assert first[0] == second[0]


@pytest.mark.parametrize(("caption", "taken"), [("dog", False), ("a dog", True), ("w " * 15, True), ("w " * 16, False)])
def test_only_captions_of_2_to_15_words_are_asked_about(caption: str, taken: bool) -> None:
    assert (find_task("paraphrase_1").accepts(caption) is None) is taken


@pytest.mark.parametrize(
    ("answer", "text"),
    [('"A dog."', "A dog."), ("\n  A  dog\nmore", "A dog"), ("", None), ('""\n\n', None), ("**A dog**", "A dog")],
)
def test_answers_are_cleaned(answer: str, text: str | None) -> None:
    assert find_task("paraphrase_1").parse(answer) == text


@given(st.text())
def test_parsing_never_raises_and_never_gives_empty_text(answer: str) -> None:
    parsed = find_task("paraphrase_2").parse(answer)
    assert parsed is None or parsed.strip()


def test_unknown_task_is_named() -> None:
    with pytest.raises(InputError, match=r"synthesize\.tasks has 'summarise' is unknown"):
        find_task("summarise")
