"""Lessons of a student, from teacher sets of both forms or from a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from components.captions.generating import engines
from components.captions.generating.store import GenerationStore
from components.captions.prompting import tasks
from components.captions.prompting.tasks import find_task
from components.core.settings import Settings, Student
from components.core.system.discovery import file_names
from components.core.system.errors import InputError
from components.students import lessons as student_lessons
from components.students.lessons import Lesson, ask_teacher, hash_of, lessons_of, read_lessons
from components.validation.rules.measuring import probes
from tests.support.student_project import CAPTIONS, Rewriter, good, make_project, plain_probes

PATH = Path("state/students/taught/lessons.parquet")


def _student(**changes: Any) -> Student:
    return Student.model_validate(
        {"tasks": ["paraphrase_1", "paraphrase_2"], "teacher": "teacher", "captions": 6} | changes
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "teacher.tsv"


@pytest.fixture
def world(tmp_path: Path, raw_params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(probes, "find_probes", lambda *_: plain_probes())
    return make_project(tmp_path, raw_params, {})


@pytest.fixture
def teach(world: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Lesson]]:
    """Has an engine teach a student; returns the lessons."""

    def run(engine: Rewriter, settings: Settings = world, **changes: Any) -> list[Lesson]:
        monkeypatch.setattr(student_lessons, "make_engine", lambda _settings, name: {"teacher": engine}[name])
        monkeypatch.setattr(engines, "make_engine", lambda _settings, _name: engine)
        PATH.parent.mkdir(parents=True, exist_ok=True)
        ask_teacher(settings, _student(**changes), PATH)
        return lessons_of(_student(**changes), PATH)

    return run


def test_a_models_answers_become_lessons(teach: Any) -> None:
    lessons = teach(Rewriter(lambda texts: f'"{good(texts)}"\nmore'))
    first = [(lesson.inputs, lesson.answer) for lesson in lessons if lesson.task.name == "paraphrase_1"]
    assert first == [({"caption": caption}, good([caption])) for caption in CAPTIONS[:6]]


def test_live_questions_are_not_taken_from_the_replay(teach: Any, world: Settings) -> None:
    engine = Rewriter(good)
    first = teach(engine, tasks=["paraphrase_1"])
    store = GenerationStore(world.synthesize.store)
    store.export_parquet(PATH.with_name("export.parquet"))
    store.close()
    task = world.synthesize.tasks["paraphrase_1"].model_copy(update={"always_ask_first": 2, "samples": 1})
    other = {"store": "sqlite:///other.db", "cached_answers": PATH.with_name("export.parquet")}
    block = world.synthesize.model_copy(update=other | {"tasks": {"paraphrase_1": task}})
    engine.asked.clear()
    assert teach(engine, world.model_copy(update={"synthesize": block}), tasks=["paraphrase_1"]) == first
    assert len(engine.asked) == 2, "all others are in the replay"


def test_answers_that_fail_the_checks_of_their_text_are_not_lessons(teach: Any) -> None:
    def sometimes(texts: Sequence[str]) -> str:
        answers = {"IMG 1": texts[0], "IMG 2": "", "IMG 3": "Sure! Here is the caption you asked for."}
        return answers.get(texts[0][:5], good(texts))

    lessons = teach(Rewriter(sometimes), tasks=["paraphrase_1"])
    assert [lesson.inputs["caption"] for lesson in lessons] == [CAPTIONS[0], *CAPTIONS[4:6]]


def test_missing_lessons_and_those_of_other_settings_are_refused(teach: Any) -> None:
    with pytest.raises(InputError, match=r"lessons\.parquet is missing: run .*--lessons-only"):
        lessons_of(_student(), PATH)
    teach(Rewriter(good))
    with pytest.raises(InputError, match=r"lessons\.parquet was made with other settings: run .*--lessons-only"):
        lessons_of(_student(captions=7), PATH)
    assert lessons_of(_student(lr=0.5), PATH)


def test_a_task_that_no_file_teaches_is_named(path: Path) -> None:
    path.write_text("caption\tparaphrase_1\nIMG dog\tA dog.\n")
    assert len(lessons_of(_student(teacher=[path], tasks=["paraphrase_1"]), path.parent)) == 1
    with pytest.raises(InputError, match=r"teacher\.tsv teach nothing for task 'paraphrase_2'"):
        lessons_of(_student(teacher=[path]), path.parent)


def test_the_hash_depends_on_task_question_answer_and_order() -> None:
    one = Lesson(find_task("paraphrase_1"), {"caption": "a dog"}, "A hound.")
    others = [
        Lesson(find_task("rewrite"), one.inputs, "A hound."),
        Lesson(one.task, {"caption": "a cat"}, "A hound."),
        Lesson(one.task, one.inputs, "A tabby."),
    ]
    hashes = {hash_of([lesson]) for lesson in (one, *others)} | {hash_of([one, *others]), hash_of([*others, one])}
    assert len(hashes) == 6


def test_lessons_of_each_task_can_be_limited(path: Path) -> None:
    lines = [f"{task}\tcaption {n}\tanswer {n}" for n in range(9) for task in ("rewrite", "negate_terms")]
    path.write_text("\n".join(["task\tcaption\tanswer", *lines]) + "\n", encoding="utf-8")

    def drawn(per_task: int | None, seed: int = 0) -> list[tuple[str, str]]:
        taught = Student(tasks=("rewrite", "negate_terms"), teacher=(path,), per_task=per_task, seed=seed)
        return [(lesson.task.name, lesson.answer) for lesson in lessons_of(taught, path.parent)]

    everything, some = drawn(None), drawn(4)
    assert Counter(task for task, _ in some) == {"rewrite": 4, "negate_terms": 4}
    assert some == [lesson for lesson in everything if lesson in some], "in their order"
    assert drawn(4) == some != drawn(4, seed=1)
    assert drawn(100) == everything


ASSETS = Path(__file__).parents[3] / "components" / "students" / "assets"
NAMES = file_names(tasks.__path__)
EDITS = "task\tcaption\tother_caption\tanswer\nnegate_terms\ta dog\t\tNo dog.\ndifference\ta dog\ta cat\tDog.\n"
DOG, BOTH = {"caption": "IMG dog"}, {"caption": "a dog", "other_caption": "a cat"}
TAUGHT: dict[str, list[tuple[str, dict[str, str], str]]] = {
    "caption\tparaphrase_1\tparaphrase_2\nIMG dog\tA dog.\tOne hound.\n": [
        ("paraphrase_1", DOG, "A dog."),
        ("paraphrase_2", {"paraphrase_1": "A dog."}, "One hound."),
        ("rewrite", DOG, "One hound."),
        ("paraphrase_semclip", DOG, "One hound."),
        ("query_paraphrase", {"query": "A dog."}, "One hound."),
    ],
    "caption\tabsent_object\tabsence\nIMG dog\tcat\tA dog, no cat.\n": [
        ("name_absent", DOG, "cat"), ("state_absence", DOG | {"absent_object": "cat"}, "A dog, no cat."),
    ],
    "caption\tunit\tunit_foil\nIMG dog\ta dog\ta cat\n": [
        ("name_unit", DOG, "a dog"), ("change_unit", DOG | {"unit": "a dog"}, "a cat"),
    ],
    EDITS: [
        ("negate_terms", {"caption": "a dog"}, "No dog."),
        ("difference", BOTH, "Dog."), ("difference_cub", BOTH, "Dog."),
    ],
}  # fmt: skip
"""Text of a file -> its lessons."""


@pytest.mark.parametrize("text", TAUGHT)
def test_a_file_teaches_the_tasks_of_its_columns_or_rows(path: Path, text: str) -> None:
    path.write_text(text)
    tasks = [name for name, *_ in TAUGHT[text]]
    found = read_lessons(path, ["judge_negation", *tasks, "swap_negative"])
    last, derived = len(tasks), text == EDITS or "paraphrase_1" in text
    assert [(lesson.task.name, lesson.inputs, lesson.answer) for lesson in found[:last]] == TAUGHT[text]
    assert [lesson.task.name for lesson in found[last:]] == ["judge_negation"] * derived
    assert [lesson.task.name for lesson in read_lessons(path, tasks[:1])] == tasks[:1]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"task\tcaption\tother_caption\tanswer\ndifference\ta dog\t\tDog.\n",
         r"teacher\.tsv, line 2: task 'difference' has no 'other_caption'"),
        (b"task\tcaption\tother_caption\tanswer\ndifference\ta dog\ta cat\t\n", "task 'difference' has no 'answer'"),
        ("caption\tdifference\nIMG\tcafé\n".encode("latin-1"), r"teacher\.tsv is not UTF-8 \(byte \d+\): save it"),
        (f"caption\tdifference\nIMG\t{'x' * 200_000}\n".encode(), r"line 2 cannot be read \(field larger"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_or_lacks_a_field_is_named(path: Path, raw: bytes, message: str) -> None:
    path.write_bytes(raw)
    with pytest.raises(InputError, match=message):
        read_lessons(path, ["difference"])


def test_own_sets_teach_every_task_answers_that_it_can_read() -> None:
    lessons = [lesson for path in sorted(ASSETS.glob("teacher*.tsv")) for lesson in read_lessons(path, NAMES)]
    others = {"type_query", "caption_picture", "check_picture", "check_absent"}
    assert {lesson.task.name for lesson in lessons} == set(NAMES) - others
    assert [lesson for lesson in lessons if not lesson.task.parse(lesson.answer)] == []
    assert all(set(lesson.inputs) == set(lesson.task.inputs) for lesson in lessons)
