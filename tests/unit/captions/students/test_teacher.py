"""A model as teacher: its answers, through the generation store, become a teacher file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from components.captions.generating import engines
from components.captions.generating.store import GenerationStore
from components.captions.students import lessons as lessons_module
from components.captions.students.lessons import Lesson, ask_teacher, lessons_of, teacher_files
from components.core.settings import Settings, Student
from components.core.system.errors import InputError
from tests.support.student_project import CAPTIONS, Rewriter, good, make_project, plain_probes

BOTH = ["paraphrase_2", "paraphrase_1"]
Teach = Callable[..., list[Lesson]]


def _student(**changes: Any) -> Student:
    return Student.model_validate({"tasks": BOTH, "teacher": "teacher", "captions": 6} | changes)


@pytest.fixture
def world(tmp_path: Path, raw_params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lessons_module, "find_probes", lambda *_: plain_probes())
    return make_project(tmp_path, raw_params, {})


@pytest.fixture
def teach(world: Settings, monkeypatch: pytest.MonkeyPatch) -> Teach:
    """Has an engine teach a student; returns the lessons."""

    def run(engine: Rewriter, settings: Settings = world, **changes: Any) -> list[Lesson]:
        monkeypatch.setattr(lessons_module, "make_engine", lambda _settings, name: {"teacher": engine}[name])
        monkeypatch.setattr(engines, "make_engine", lambda _settings, _name: engine)
        ask_teacher(settings, "taught", _student(**changes))
        return lessons_of(settings, "taught", _student(**changes))

    return run


def _of(task: str, lessons: list[Lesson]) -> list[tuple[dict[str, str], str]]:
    return [(dict(lesson.inputs), lesson.answer) for lesson in lessons if lesson.task.name == task]


def test_a_models_answers_become_lessons(teach: Teach) -> None:
    lessons = teach(Rewriter(lambda texts: f'"{good(texts)}"\nmore'), tasks=["paraphrase_1"])
    assert _of("paraphrase_1", lessons) == [({"caption": caption}, good([caption])) for caption in CAPTIONS[:6]]


def test_a_task_reads_the_teachers_own_answers_to_the_task_before(teach: Teach) -> None:
    def answer(texts: Sequence[str]) -> str:
        return good(texts) if "IMG" in texts[0] else f"{good(texts)} Outdoors near some green grass."

    lessons = teach(Rewriter(answer))
    first = [good([caption]) for caption in CAPTIONS[:6]]
    assert [answer for _, answer in _of("paraphrase_1", lessons)] == first
    assert [inputs for inputs, _ in _of("paraphrase_2", lessons)] == [{"paraphrase_1": text} for text in first]


def test_each_row_is_sent_once_with_the_tasks_own_sampling(teach: Teach, world: Settings) -> None:
    engine, task = Rewriter(good), world.synthesize.tasks["paraphrase_1"]
    teach(engine, tasks=["paraphrase_1"])
    assert task.samples == 2
    asked = [(one.sampling.temperature, one.sampling.top_p) for one in engine.asked]
    assert asked == [(task.temperature, task.top_p)] * 6
    teach(engine, tasks=["paraphrase_1"])
    assert len(engine.asked) == 6, "all others are in the store"


def test_live_questions_are_not_taken_from_the_replay(teach: Teach, world: Settings) -> None:
    engine = Rewriter(good)
    first = teach(engine, tasks=["paraphrase_1"])
    store = GenerationStore(world.synthesize.store)
    store.export_parquet(Path("export.parquet"))
    store.close()
    task = world.synthesize.tasks["paraphrase_1"].model_copy(update={"always_ask_first": 2, "samples": 1})
    other = {"store": "sqlite:///other.db", "cached_answers": Path("export.parquet")}
    block = world.synthesize.model_copy(update=other | {"tasks": {"paraphrase_1": task}})
    engine.asked.clear()
    assert teach(engine, world.model_copy(update={"synthesize": block}), tasks=["paraphrase_1"]) == first
    assert len(engine.asked) == 2, "all others are in the replay"


def test_answers_that_fail_the_checks_of_their_text_are_not_lessons(teach: Teach) -> None:
    def sometimes(texts: Sequence[str]) -> str:
        answers = {"IMG 1": texts[0], "IMG 2": "", "IMG 3": "Sure! Here is the caption you asked for."}
        return answers.get(texts[0][:5], good(texts))

    lessons = teach(Rewriter(sometimes), tasks=["paraphrase_1"])
    assert [lesson.inputs["caption"] for lesson in lessons] == [CAPTIONS[0], *CAPTIONS[4:6]]


def test_missing_lessons_and_those_of_other_settings_are_refused(teach: Teach, world: Settings) -> None:
    one = {"tasks": ["paraphrase_1"]}
    with pytest.raises(InputError, match=r"lessons\.tsv is missing: run .*--lessons-only"):
        lessons_of(world, "taught", _student(**one))
    teach(Rewriter(good), **one)
    with pytest.raises(InputError, match=r"lessons\.tsv is missing: run .*--lessons-only"):
        lessons_of(world, "taught", _student(captions=7, **one))
    assert lessons_of(world, "taught", _student(lr=0.5, **one))
    assert teacher_files("taught", _student(**one))[0].stem == "lessons"


def test_a_task_without_its_input_or_block_is_named(teach: Teach) -> None:
    for name, fault in (
        ("paraphrase_2", "task 'paraphrase_2' needs the answers of 'paraphrase_1': add that task"),
        ("paraphrase_3", r"params\.yaml has no block synthesize\.tasks\.paraphrase_3"),
    ):
        with pytest.raises(InputError, match=fault):
            teach(Rewriter(good), tasks=[name])
