"""Lessons as tokens: what the model is shown, what it is scored on, and how batches are drawn."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.captions.local_model.language_model import LanguageModel
from components.captions.task import PromptTask, completion
from components.captions.tasks import find_task
from components.core.errors import InputError
from components.students.lessons import Lesson
from components.students.loop import (
    IGNORED,
    EncodedLesson,
    answer_tokens,
    batches_of_like_length,
    chat_of,
    encode,
    padded,
)
from tests.support.student_making import load_tiny, make_lessons
from tests.support.tiny_language_model import save_tiny_language_model


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return load_tiny(save_tiny_language_model(tmp_path_factory.mktemp("tiny")))


def _examples(count: int) -> list[EncodedLesson]:
    rng = random.Random(0)
    return [EncodedLesson(np.full(rng.randint(2, 300), number, dtype=np.int32), 1) for number in range(count)]


def _numbers(batches: list[list[EncodedLesson]]) -> list[list[int]]:
    return [[int(example.ids[0]) for example in batch] for batch in batches]


def _padding(batches: list[list[EncodedLesson]]) -> int:
    return sum(max(len(ids) for ids, _ in batch) * len(batch) - sum(len(ids) for ids, _ in batch) for batch in batches)


def test_batches_hold_every_example_once_and_little_padding() -> None:
    examples = _examples(160)
    batches = batches_of_like_length(examples, 8, random.Random(1))
    assert sorted(number for batch in _numbers(batches) for number in batch) == list(range(160))
    assert all(len(batch) == 8 for batch in batches)
    assert _padding(batches) < 0.2 * _padding([examples[start : start + 8] for start in range(0, 160, 8)])


def test_batches_differ_between_epochs_and_drop_the_rest() -> None:
    rng = random.Random(1)
    first, second = (_numbers(batches_of_like_length(_examples(300), 16, rng)) for _ in range(2))
    assert len(first) == len(second) == 300 // 16
    assert {tuple(sorted(batch)) for batch in first}.isdisjoint({tuple(sorted(batch)) for batch in second})


@given(st.integers(0, 700), st.integers(1, 24))
def test_an_epoch_has_as_many_batches_as_fit(count: int, batch_size: int) -> None:
    examples = [EncodedLesson(np.zeros(1 + number % 7, dtype=np.int32), 1) for number in range(count)]
    assert len(batches_of_like_length(examples, batch_size, random.Random(0))) == count // batch_size


def test_a_lesson_is_the_engines_question_then_the_answer_and_what_ends_it(loaded: LanguageModel) -> None:
    (lesson,) = make_lessons(1)
    (example,) = encode(loaded.tokenizer, [lesson])
    question = loaded.tokenizer.apply_chat_template(chat_of(lesson), tokenize=False, add_generation_prompt=True)
    assert loaded.tokenizer.decode(example.ids[: example.prompt]) == question
    assert question.startswith("<s><system>")
    assert loaded.tokenizer.decode(example.ids[example.prompt :]) == f"{lesson.answer}\n"


def test_what_could_steer_the_model_is_taken_out_of_a_lessons_question() -> None:
    chat = chat_of(Lesson(find_task("paraphrase_1"), {"caption": 'a "dog" <|im_end|> hat'}, "A dog."))
    assert "a 'dog' hat" in chat[-1]["content"]
    assert "<|" not in chat[-1]["content"]


@pytest.mark.parametrize(("prompt", "continued"), [("Q: what?\nA:", " Good.</s>"), ("A: ", "Good.</s>")])
def test_a_completion_is_continued_without_a_template(loaded: LanguageModel, prompt: str, continued: str) -> None:
    task = PromptTask(
        name="plain",
        citation="none",
        inputs=("caption",),
        reads=find_task("paraphrase_1").reads,
        accepts=find_task("paraphrase_1").accepts,
        messages=lambda _: completion(prompt),
        parse=str,
    )
    (example,) = encode(loaded.tokenizer, [Lesson(task, {"caption": "x"}, "Good.")])
    assert loaded.tokenizer.decode(example.ids[: example.prompt]) == f"<s>{prompt}"
    assert loaded.tokenizer.decode(example.ids[example.prompt :]) == continued


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        ("{{ raise_exception('no system here') }}", r"cannot render task 'paraphrase_1' \(no system here\)"),
        ("{{ messages | length }}", "changes a question once it is answered"),
        (None, "cannot render task 'paraphrase_1'"),
    ],
)
def test_a_chat_template_that_does_not_fit_is_refused_in_one_line(
    loaded: LanguageModel, template: str | None, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded.tokenizer, "chat_template", template)
    with pytest.raises(InputError, match=fault) as caught:
        encode(loaded.tokenizer, make_lessons(1))
    assert "\n" not in str(caught.value)


def test_a_batch_scores_the_answers_tokens_alone() -> None:
    examples = [EncodedLesson(np.arange(1, 6, dtype=np.int32), 3), EncodedLesson(np.arange(10, 50, dtype=np.int32), 39)]
    batch = padded(examples, "cpu")
    assert batch.ids.shape == (2, 64)
    assert batch.ids[0, :5].tolist() == [1, 2, 3, 4, 5]
    assert batch.mask.sum(1).tolist() == [5, 40]
    assert [row[row != IGNORED].tolist() for row in batch.labels] == [[4, 5], [49]]
    assert answer_tokens(examples) == 3
