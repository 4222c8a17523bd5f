"""Lessons of a student, from teacher files of both forms and from a model, and the rules that answers must pass."""

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
from components.captions.students import lessons as lessons_module
from components.captions.students.lessons import (
    Examiner,
    Lesson,
    ask_teacher,
    hash_of,
    lessons_of,
    read_lessons,
    teacher_files,
)
from components.core.settings import Settings, Student
from components.core.system.discovery import file_names
from components.core.system.errors import InputError
from research.lessons.verdicts import write_verdicts
from tests.support.fake_engine import FakeEngine
from tests.support.student_project import CAPTIONS, good, make_project, plain_probes, rewriter


def _student(path: Path, tasks: list[str], **changes: Any) -> Student:
    return Student.model_validate({"tasks": tasks, "teacher": [path]} | changes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "teacher.tsv"


def test_tasks_that_no_file_teaches_are_named_and_own_answers_teach_one(path: Path, settings: Settings) -> None:
    path.write_text("caption\tparaphrase_1\nIMG dog\tA dog.\n")
    assert len(lessons_of(settings, "taught", _student(path, ["paraphrase_1"]))) == 1
    with pytest.raises(InputError, match=r"teacher\.tsv teach nothing for task 'paraphrase_2'"):
        lessons_of(settings, "taught", _student(path, ["paraphrase_1", "paraphrase_2"]))
    path.write_text(f"{EDITS}difference_cub\ta dog\ta cat\tA dog.\n")
    assert [lesson.answer for lesson in read_lessons(path, ["difference_cub"])] == ["A dog."]


def test_the_hash_depends_on_task_question_answer_and_order() -> None:
    one = Lesson(find_task("paraphrase_1"), {"caption": "a dog"}, "A hound.")
    others = [
        Lesson(find_task("rewrite"), one.inputs, "A hound."),
        Lesson(one.task, {"caption": "a cat"}, "A hound."),
        Lesson(one.task, one.inputs, "A tabby."),
    ]
    hashes = {hash_of([lesson]) for lesson in (one, *others)} | {hash_of([one, *others]), hash_of([*others, one])}
    assert len(hashes) == 6


def test_lessons_of_each_task_can_be_limited(path: Path, settings: Settings) -> None:
    lines = [f"{task}\tcaption {n}\tanswer {n}" for n in range(9) for task in ("rewrite", "negate_terms")]
    path.write_text("\n".join(["task\tcaption\tanswer", *lines]) + "\n", encoding="utf-8")

    def drawn(per_task: int | None, seed: int = 0) -> list[tuple[str, str]]:
        taught = _student(path, ["rewrite", "negate_terms"], per_task=per_task, seed=seed)
        return [(lesson.task.name, lesson.answer) for lesson in lessons_of(settings, "taught", taught)]

    everything, some = drawn(None), drawn(4)
    assert Counter(task for task, _ in some) == {"rewrite": 4, "negate_terms": 4}
    assert some == [lesson for lesson in everything if lesson in some], "in their order"
    assert drawn(4) == some != drawn(4, seed=1)
    assert drawn(100) == everything


ASSETS = Path(__file__).parents[4] / "components" / "captions" / "students" / "assets"
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
    assert [(lesson.task.name, lesson.inputs, lesson.answer) for lesson in found] == TAUGHT[text]
    assert [lesson.task.name for lesson in read_lessons(path, tasks[:1])] == tasks[:1]


def test_a_file_that_cannot_be_read_or_lacks_a_field_is_named(path: Path) -> None:
    for raw, message in [
        (
            b"task\tcaption\tother_caption\tanswer\ndifference\ta dog\t\tDog.\n",
            r"teacher\.tsv, line 2: task 'difference' has no 'other_caption'",
        ),
        (b"task\tcaption\tother_caption\tanswer\ndifference\ta dog\ta cat\t\n", "task 'difference' has no 'answer'"),
        ("caption\tdifference\nIMG\tcafé\n".encode("latin-1"), r"teacher\.tsv is not UTF-8 \(byte \d+\): save it"),
        (f"caption\tdifference\nIMG\t{'x' * 200_000}\n".encode(), r"line 2 cannot be read \(field larger"),
    ]:
        path.write_bytes(raw)
        with pytest.raises(InputError, match=message):
            read_lessons(path, ["difference"])


def test_own_sets_teach_every_task_and_verdicts_follow(tmp_path: Path) -> None:
    lessons = [lesson for path in sorted(ASSETS.glob("teacher*.tsv")) for lesson in read_lessons(path, NAMES)]
    others = {"type_query", "caption_picture", "check_picture", "check_absent"}
    assert {lesson.task.name for lesson in lessons} == set(NAMES) - others
    assert [lesson for lesson in lessons if not lesson.task.parse(lesson.answer)] == []
    assert all(set(lesson.inputs) == set(lesson.task.inputs) for lesson in lessons)
    write_verdicts(tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (ASSETS / path.name).read_bytes(), "run `python -m research.lessons.verdicts`"
    assert len(list(tmp_path.iterdir())) == 2


JUDGES = [name for name in NAMES if find_task(name).judges]


@pytest.mark.parametrize("name", JUDGES)
def test_a_judge_reads_the_inputs_and_the_answer_of_the_judged_task(name: str) -> None:
    judge, judged = find_task(name), find_task(str(find_task(name).judges))
    inputs = {column: f"text of {column}" for column in judge.inputs}
    assert set(judged.inputs) <= set(inputs)
    assert judge.inputs[0] == judged.inputs[0]
    assert judge.inputs[1:] == judged.outputs, "the candidate goes by the name of the judged task's answer"
    assert "text of caption" in judged.messages(inputs)[-1]["content"]


@pytest.mark.parametrize("name", JUDGES)
def test_lessons_of_judges_are_balanced(name: str) -> None:
    files = sorted(ASSETS.glob("teacher*.tsv"))
    counts = Counter(lesson.answer for path in files for lesson in read_lessons(path, [name]))
    assert set(counts) == {"Yes", "No"}
    assert min(counts.values()) > 0.85 * max(counts.values()), counts
    assert counts.total() > 800


CAPTION = "IMG_7 small dog left of large cat red bg.jpg"
RIGHT = "A small dog sits left of a large cat, red background."


@pytest.fixture
def world(tmp_path: Path, raw_params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lessons_module, "find_probes", lambda *_: plain_probes())
    return make_project(tmp_path, raw_params, {})


@pytest.fixture
def examiner(world: Settings) -> Examiner:
    return Examiner(world)


def _lesson(task: str, answer: str, **inputs: str) -> Lesson:
    return Lesson(find_task(task), inputs, answer)


def test_a_good_writer_is_accepted_and_a_parrot_is_not(examiner: Examiner) -> None:
    held_out = [_lesson("paraphrase_1", "Unseen.", caption=caption) for caption in CAPTIONS]
    held_out += [_lesson("paraphrase_2", "Unseen.", paraphrase_1=good([caption])) for caption in CAPTIONS[:3]]
    engine = rewriter(good)
    for _ in range(2):
        assert examiner.rates(engine, held_out, 5) == {"paraphrase_1": 1.0, "paraphrase_2": 0.0}
    assert len(engine.asked) == 2 * (5 + 3)
    assert examiner.rates(rewriter(lambda texts: texts[0]), held_out, 5) == {"paraphrase_1": 0.0, "paraphrase_2": 0.0}
    held_out = [
        _lesson("judge_negation", verdict, caption=f"dog {number}", negation="no dog")
        for number, verdict in enumerate(["yes", "yes", "no", "Yes"])
    ]
    assert examiner.rates(rewriter(lambda _: "Yes."), held_out, 5) == {"judge_negation": 0.75}
    held_out = [_lesson("query_paraphrase", "Unseen.", query=caption) for caption in CAPTIONS]
    assert examiner.rates(rewriter(good), held_out, 5) == {"query_paraphrase": 1.0}
    assert examiner.rates(rewriter(lambda _: ""), held_out, 5) == {"query_paraphrase": 0.0}


def test_questions_are_an_engines_and_answers_keep_the_limits(examiner: Examiner, settings: Settings) -> None:
    engine = rewriter(good)
    examiner.rates(engine, [_lesson("paraphrase_1", "Unseen.", caption=CAPTION)], 5)
    (asked,), task = engine.asked, settings.synthesize.tasks["paraphrase_1"]
    assert CAPTION in asked.messages[-1]["content"]
    assert (asked.sampling.temperature, asked.sampling.max_tokens) == (task.temperature, task.max_tokens)
    texts = [RIGHT, None, CAPTION, "Dog.", "Here is a paraphrase of the caption: a dog and a cat."]
    assert _passes(examiner, "paraphrase_1", texts) == [True, False, False, False, False]
    assert _passes(examiner, "paraphrase_1", []) == []
    assert _passes(examiner, "paraphrase_1", [None]) == [False]
    assert find_task("judge_negation").judges == "negate_semclip", "a judged answer is held to its judge's table"
    texts = ["There is no small dog left of a large cat.", "A small dog is left of a large cat there."]
    assert _passes(examiner, "negate_semclip", texts) == [True, False]


def _passes(examiner: Examiner, task: str, texts: list[str | None]) -> list[bool]:
    return examiner.passing(find_task(task), [({"caption": CAPTION}, text) for text in texts])


@pytest.mark.parametrize("name", NAMES)
def test_the_answers_to_every_task_can_be_checked(name: str, examiner: Examiner) -> None:
    task = find_task(name)
    inputs = {text: f"a {text} dog" for text in task.inputs}
    passes = examiner.passing(task, [(inputs, '{"score": 0.5}'), (inputs, None)])
    assert len(passes) == 2
    assert passes[1] is False


Teach = Callable[..., list[Lesson]]


def _pupil(**changes: Any) -> Student:
    return Student.model_validate(
        {"tasks": ["paraphrase_2", "paraphrase_1"], "teacher": "teacher", "captions": 6} | changes
    )


@pytest.fixture
def teach(world: Settings, monkeypatch: pytest.MonkeyPatch) -> Teach:
    """Has an engine teach a student; returns the lessons."""

    def run(engine: FakeEngine, settings: Settings = world, **changes: Any) -> list[Lesson]:
        monkeypatch.setattr(lessons_module, "make_engine", lambda _settings, name: {"teacher": engine}[name])
        monkeypatch.setattr(engines, "make_engine", lambda _settings, _name: engine)
        ask_teacher(settings, "taught", _pupil(**changes))
        return lessons_of(settings, "taught", _pupil(**changes))

    return run


def _of(task: str, lessons: list[Lesson]) -> list[tuple[dict[str, str], str]]:
    return [(dict(lesson.inputs), lesson.answer) for lesson in lessons if lesson.task.name == task]


def test_a_models_answers_become_lessons_and_inputs_of_the_next_task(teach: Teach) -> None:
    lessons = teach(rewriter(lambda texts: f'"{good(texts)}"\nmore'), tasks=["paraphrase_1"])
    assert _of("paraphrase_1", lessons) == [({"caption": caption}, good([caption])) for caption in CAPTIONS[:6]]

    def answer(texts: Sequence[str]) -> str:
        return good(texts) if "IMG" in texts[0] else f"{good(texts)} Outdoors near some green grass."

    lessons = teach(rewriter(answer))
    first = [good([caption]) for caption in CAPTIONS[:6]]
    assert [answer for _, answer in _of("paraphrase_1", lessons)] == first
    assert [inputs for inputs, _ in _of("paraphrase_2", lessons)] == [{"paraphrase_1": text} for text in first]


def test_each_row_is_sent_once_with_the_tasks_own_sampling(teach: Teach, world: Settings) -> None:
    engine, task = rewriter(good), world.synthesize.tasks["paraphrase_1"]
    teach(engine, tasks=["paraphrase_1"])
    assert task.samples == 2
    asked = [(one.sampling.temperature, one.sampling.top_p) for one in engine.asked]
    assert asked == [(task.temperature, task.top_p)] * 6
    teach(engine, tasks=["paraphrase_1"])
    assert len(engine.asked) == 6, "all others are in the store"


def test_live_questions_are_not_taken_from_the_replay(teach: Teach, world: Settings) -> None:
    engine = rewriter(good)
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

    lessons = teach(rewriter(sometimes), tasks=["paraphrase_1"])
    assert [lesson.inputs["caption"] for lesson in lessons] == [CAPTIONS[0], *CAPTIONS[4:6]]


def test_missing_lessons_and_those_of_other_settings_are_refused(teach: Teach, world: Settings) -> None:
    one = {"tasks": ["paraphrase_1"]}
    with pytest.raises(InputError, match=r"lessons\.tsv is missing: run .*--lessons-only"):
        lessons_of(world, "taught", _pupil(**one))
    teach(rewriter(good), **one)
    with pytest.raises(InputError, match=r"lessons\.tsv is missing: run .*--lessons-only"):
        lessons_of(world, "taught", _pupil(captions=7, **one))
    assert lessons_of(world, "taught", _pupil(lr=0.5, **one))
    assert teacher_files("taught", _pupil(**one))[0].stem == "lessons"


def test_a_task_without_its_input_or_block_is_named(teach: Teach) -> None:
    for name, fault in (
        ("paraphrase_2", "task 'paraphrase_2' needs the answers of 'paraphrase_1': add that task"),
        ("paraphrase_3", r"params\.yaml has no block synthesize\.tasks\.paraphrase_3"),
    ):
        with pytest.raises(InputError, match=fault):
            teach(rewriter(good), tasks=[name])
