"""The questions on which base and student are compared, and which answers count as accepted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from components.captions.prompting.tasks import find_task
from components.core.settings import Settings, Student
from components.core.tables.records import PAIRS
from components.students import acceptance as student_acceptance
from components.students.acceptance import Examination, prepare_examination
from components.students.lessons import Lesson
from tests.support.student_project import CAPTIONS, Rewriter, good, make_project, parrot, plain_probes

STATE = Path("state/students/taught")


@pytest.fixture
def world(tmp_path: Path, raw_params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(student_acceptance, "find_probes", lambda *_: plain_probes())
    STATE.mkdir(parents=True)
    return make_project(tmp_path, raw_params, {})


def _lesson(task: str, answer: str, **inputs: str) -> Lesson:
    return Lesson(find_task(task), inputs, answer)


def _prepare(
    world: Settings, tasks: Sequence[str], lessons: Sequence[Lesson] = (), held_out: Sequence[Lesson] = ()
) -> Examination:
    student = Student.model_validate({"tasks": tasks, "teacher": ["set.tsv"], "acceptance": 5})
    return prepare_examination(world, student, lessons, held_out, STATE)


def test_captions_are_drawn_by_seed_and_without_those_of_lessons(world: Settings) -> None:
    lessons = [_lesson("paraphrase_1", "A dog.", caption=caption) for caption in CAPTIONS[:9]]
    examination = _prepare(world, ["paraphrase_1"], lessons)
    assert sorted(PAIRS.read(examination.pairs).column("caption").to_pylist()) == sorted(CAPTIONS[9:])
    drawn = [PAIRS.read(_prepare(world, ["rewrite"]).pairs).column("caption").to_pylist() for _ in range(2)]
    assert drawn[0] == drawn[1] != CAPTIONS[:5]
    assert len(drawn[0]) == 5


def test_a_good_writer_is_accepted_a_parrot_is_not_and_each_examination_sends_its_questions(world: Settings) -> None:
    examination, engine = _prepare(world, ["paraphrase_2", "paraphrase_1"]), Rewriter(good)
    for _ in range(2):
        assert examination.rates(engine) == {"paraphrase_1": 1.0, "paraphrase_2": 0.0}
    assert len(engine.asked) == 20
    assert list(STATE.iterdir()) == [examination.pairs]
    assert examination.rates(Rewriter(parrot)) == {"paraphrase_1": 0.0, "paraphrase_2": 0.0}


def test_a_judge_is_right_when_its_verdict_is_that_of_the_held_out_lesson(world: Settings) -> None:
    held_out = [
        _lesson("judge_negation", verdict, caption=f"dog {number}", negation="no dog")
        for number, verdict in enumerate(["yes", "yes", "no", "Yes"])
    ]
    examination = _prepare(world, ["judge_negation"], held_out, held_out)
    assert examination.by_caption == []
    assert examination.rates(Rewriter(lambda _: "Yes.")) == {"judge_negation": 0.75}


def test_a_task_about_other_inputs_is_examined_on_its_held_out_lessons(world: Settings) -> None:
    held_out = [_lesson("query_paraphrase", "Unseen.", query=caption) for caption in CAPTIONS]
    examination = _prepare(world, ["query_paraphrase"], held_out, held_out)
    engine = Rewriter(good)
    assert examination.rates(engine) == {"query_paraphrase": 1.0}
    assert len(engine.asked) == 5
    assert examination.rates(Rewriter(lambda _: "")) == {"query_paraphrase": 0.0}
