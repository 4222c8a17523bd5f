"""The student's training data and the record of what it was trained on."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from components.captions.student import ASSETS, TEACHERS, Example, batches_of_like_length, tasks_of
from components.captions.teacher import read_lessons
from components.errors import InputError
from components.files import file_hash
from components.settings import Settings, Synthesize

REPO = Path(__file__).parents[3]


def _examples(count: int) -> list[Example]:
    rng = random.Random(0)
    return [([number] * rng.randint(1, 300), 1) for number in range(count)]


def _padding(batches: list[list[Example]]) -> int:
    return sum(max(len(ids) for ids, _ in batch) * len(batch) - sum(len(ids) for ids, _ in batch) for batch in batches)


def test_batches_hold_every_example_once_and_little_padding() -> None:
    examples = _examples(160)
    batches = batches_of_like_length(examples, 8, random.Random(1))
    assert sorted(example for batch in batches for example in batch) == sorted(examples)
    assert all(len(batch) == 8 for batch in batches)
    assert _padding(batches) < 0.2 * _padding([examples[start : start + 8] for start in range(0, 160, 8)])


def test_batches_differ_between_epochs_and_drop_the_rest() -> None:
    rng = random.Random(1)
    first, second = (batches_of_like_length(_examples(300), 16, rng) for _ in range(2))
    assert len(first) == len(second) == 300 // 16
    assert {tuple(sorted(ids[0] for ids, _ in batch)) for batch in first}.isdisjoint(
        {tuple(sorted(ids[0] for ids, _ in batch)) for batch in second}
    )


def test_a_student_learns_the_tasks_that_name_it(raw_params: dict[str, Any]) -> None:
    raw_params["synthesize"] |= {
        "adapter": "a/first",
        "tasks": {"paraphrase_1": {"input": "x"}, "rewrite": {"input": "x", "adapter": "a/../a/second"}},
    }
    settings = Synthesize.model_validate(raw_params["synthesize"])
    assert tasks_of(Path("a/first"), settings) == ["paraphrase_1"]
    assert tasks_of(Path("a/second"), settings) == ["rewrite"]
    with pytest.raises(InputError, match=r"no task of synthesize\.tasks has the adapter a/third"):
        tasks_of(Path("a/third"), settings)


@pytest.mark.parametrize("name", ["student", "student_edits"])
def test_own_students_were_trained_on_the_teacher_sets_that_are_here(name: str, settings: Settings) -> None:
    recorded = json.loads((REPO / ASSETS / name / "student.json").read_text("utf-8"))
    tasks = tasks_of(ASSETS / name, settings.synthesize)
    taught = {path.name for path in TEACHERS if read_lessons(REPO / path, tasks)}
    assert recorded["tasks"] == sorted(tasks)
    assert recorded["teacher_sha256"] == {teacher: file_hash(REPO / ASSETS / teacher) for teacher in taught}
    assert recorded["held_out_loss"]["after"] < recorded["held_out_loss"]["before"]
