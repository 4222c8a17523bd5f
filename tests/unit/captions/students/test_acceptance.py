"""The rules that an answer must pass, and the shares of answers that do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.captions.prompting import tasks
from components.captions.prompting.tasks import find_task
from components.captions.students import lessons as lessons_module
from components.captions.students.lessons import Examiner, Lesson
from components.core.settings import Settings
from components.core.system.discovery import file_names
from tests.support.student_project import CAPTIONS, Rewriter, good, make_project, parrot, plain_probes

CAPTION = "IMG_7 small dog left of large cat red bg.jpg"
RIGHT = "A small dog sits left of a large cat, red background."


@pytest.fixture
def examiner(tmp_path: Path, raw_params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Examiner:
    monkeypatch.setattr(lessons_module, "find_probes", lambda *_: plain_probes())
    return Examiner(make_project(tmp_path, raw_params, {}))


def _lesson(task: str, answer: str, **inputs: str) -> Lesson:
    return Lesson(find_task(task), inputs, answer)


def test_a_good_writer_is_accepted_a_parrot_is_not_and_each_examination_sends_its_questions(examiner: Examiner) -> None:
    held_out = [_lesson("paraphrase_1", "Unseen.", caption=caption) for caption in CAPTIONS]
    held_out += [_lesson("paraphrase_2", "Unseen.", paraphrase_1=good([caption])) for caption in CAPTIONS[:3]]
    engine = Rewriter(good)
    for _ in range(2):
        assert examiner.rates(engine, held_out, 5) == {"paraphrase_1": 1.0, "paraphrase_2": 0.0}
    assert len(engine.asked) == 2 * (5 + 3)
    assert examiner.rates(Rewriter(parrot), held_out, 5) == {"paraphrase_1": 0.0, "paraphrase_2": 0.0}


def test_a_question_is_the_one_that_an_engine_gets(examiner: Examiner, settings: Settings) -> None:
    engine = Rewriter(good)
    examiner.rates(engine, [_lesson("paraphrase_1", "Unseen.", caption=CAPTION)], 5)
    (asked,), task = engine.asked, settings.synthesize.tasks["paraphrase_1"]
    assert CAPTION in asked.messages[-1]["content"]
    assert (asked.sampling.temperature, asked.sampling.max_tokens) == (task.temperature, task.max_tokens)


def test_a_judge_is_right_when_its_verdict_is_that_of_the_held_out_lesson(examiner: Examiner) -> None:
    held_out = [
        _lesson("judge_negation", verdict, caption=f"dog {number}", negation="no dog")
        for number, verdict in enumerate(["yes", "yes", "no", "Yes"])
    ]
    assert examiner.rates(Rewriter(lambda _: "Yes."), held_out, 5) == {"judge_negation": 0.75}


def test_a_task_about_other_inputs_is_examined_too(examiner: Examiner) -> None:
    held_out = [_lesson("query_paraphrase", "Unseen.", query=caption) for caption in CAPTIONS]
    assert examiner.rates(Rewriter(good), held_out, 5) == {"query_paraphrase": 1.0}
    assert examiner.rates(Rewriter(lambda _: ""), held_out, 5) == {"query_paraphrase": 0.0}


def _passes(examiner: Examiner, task: str, texts: list[str | None]) -> list[bool]:
    return examiner.passing(find_task(task), [({"caption": CAPTION}, text) for text in texts])


def test_an_answer_must_keep_the_limits_of_its_table(examiner: Examiner) -> None:
    texts = [RIGHT, None, CAPTION, "Dog.", "Here is a paraphrase of the caption: a dog and a cat."]
    assert _passes(examiner, "paraphrase_1", texts) == [True, False, False, False, False]
    assert _passes(examiner, "paraphrase_1", []) == []
    assert _passes(examiner, "paraphrase_1", [None]) == [False]
    assert find_task("judge_negation").judges == "negate_semclip", "a judged answer is held to its judge's table"
    texts = ["There is no small dog left of a large cat.", "A small dog is left of a large cat there."]
    assert _passes(examiner, "negate_semclip", texts) == [True, False]


@pytest.mark.parametrize("name", file_names(tasks.__path__))
def test_the_answers_to_every_task_can_be_checked(name: str, examiner: Examiner) -> None:
    task = find_task(name)
    inputs = {text: f"a {text} dog" for text in task.inputs}
    passes = examiner.passing(task, [(inputs, '{"score": 0.5}'), (inputs, None)])
    assert len(passes) == 2
    assert passes[1] is False
