"""Prompt tasks ask what the paper asks and take answers apart without raising."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.captions import tasks
from components.captions.sources import Inputs
from components.captions.tasks import find_task
from components.discovery import file_names
from components.errors import InputError

NAMES = file_names(tasks.__path__)


def _inputs(name: str, text: str = "a cake plate") -> Inputs:
    return {column: f"{text} ({column})" for column in find_task(name).inputs}


def test_the_paraphrase_questions_are_the_papers() -> None:
    first = find_task("paraphrase_1").messages({"caption": "a cake plate"})
    second = find_task("paraphrase_2").messages({"paraphrase_1": "a cake plate"})
    assert first[-1]["content"].endswith('"a cake plate" concisely while preserving the meaning.')
    assert "avoiding use of existing words" in second[-1]["content"]
    assert first[0] == second[0]


def test_the_negation_question_is_the_papers() -> None:
    question = find_task("negate_semclip").messages({"caption": "a cake plate"})[-1]["content"]
    assert question == "Generate a completely false version of this sentence: a cake plate"


def test_the_difference_question_names_both_in_order_after_its_demonstrations() -> None:
    one, other = ({"caption": a, "other_caption": b} for a, b in (("a cat", "a dog"), ("a dog", "a cat")))
    messages, turned = find_task("difference").messages(one), find_task("difference").messages(other)
    assert '"a cat" and one captioned with "a dog"' in messages[-1]["content"]
    assert '"a dog" and one captioned with "a cat"' in turned[-1]["content"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "assistant", "user"]


@pytest.mark.parametrize("name", NAMES)
def test_every_task_asks_about_all_its_inputs_last(name: str) -> None:
    task = find_task(name)
    messages = task.messages(_inputs(name))
    assert task.name == name
    assert task.accepts(_inputs(name)) is None
    assert all(text in messages[-1]["content"] for text in _inputs(name).values())
    assert messages[:-1] == task.messages(_inputs(name, "a tray"))[:-1], "what is the same must stand first"


@pytest.mark.parametrize("name", [name for name in NAMES if "caption" in find_task(name).inputs])
@pytest.mark.parametrize(("caption", "taken"), [("dog", False), ("a dog", True), ("w " * 15, True), ("w " * 16, False)])
def test_every_task_takes_the_same_captions(name: str, caption: str, *, taken: bool) -> None:
    assert (find_task(name).accepts({"caption": caption}) is None) is taken


@pytest.mark.parametrize(
    ("answer", "text"),
    [('"A dog."', "A dog."), ("\n  A  dog\nmore", "A dog"), ("", None), ('""\n\n', None), ("**A dog**", "A dog")],
)
def test_answers_are_cleaned(answer: str, text: str | None) -> None:
    assert find_task("paraphrase_1").parse(answer) == text


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("A: The dog is\nlarger.", "The dog is larger."),
        ("The dog is larger. Q: What is the visual", "The dog is larger."),
        ("The dog is larger. Note: I cannot see", "The dog is larger."),
        ("The dog is larger. I hope this helps", "The dog is larger."),
        ("#1: The dog. #2: The cat.", "The dog."),
        ("The dog on a notebook, with a musical note.", "The dog on a notebook, with a musical note."),
        ("Q: What", None),
        ("\n\n\n\n\n\n\n\n", None),
    ],
)
def test_differences_end_where_the_model_goes_on_to_something_else(answer: str, text: str | None) -> None:
    assert find_task("difference").parse(answer) == text


@pytest.mark.parametrize("name", NAMES)
@given(answer=st.text())
def test_parsing_never_raises_and_never_gives_empty_text(name: str, answer: str) -> None:
    parsed = find_task(name).parse(answer)
    assert parsed is None or parsed.strip()


def test_unknown_task_is_named() -> None:
    with pytest.raises(InputError, match=r"synthesize\.tasks has 'summarise' is unknown"):
        find_task("summarise")
