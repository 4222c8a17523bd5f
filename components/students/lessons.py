"""Lessons of a student: written by hand, derived for judges, or a model's answers that pass their row rules."""

from __future__ import annotations

import csv
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from more_itertools import batched

from components.captions.generating.engines import make_engine
from components.captions.generating.questions import import_replay
from components.captions.generating.store import GenerationStore
from components.captions.prompting.disarm import disarm
from components.captions.prompting.request import Chat, Inputs
from components.captions.prompting.task import PromptTask
from components.captions.prompting.tasks import find_task
from components.core.settings import Settings, Student
from components.core.system.errors import InputError
from components.core.tables.files import content_hash
from components.core.tables.table import Table
from components.students.answers import ask_tasks, passing

EVALUATION = Path("data/evaluation")
_ASKED = "cliptune.asked"
_BLOCK = 10_000
LESSONS = Table(
    "lessons", pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("task", "inputs", "answer")])
)
"""A task, its inputs as a JSON object, and the answer that a student learns."""


def lessons_of(student: Student, path: Path) -> list[Lesson]:
    """The lessons of a student, in a fixed order; a model's lessons must exist, see `ask_teacher`."""
    if isinstance(student.teacher, str):
        return _drawn(student, _read(student, path))
    lessons = [lesson for file in student.teacher for lesson in read_lessons(file, student.tasks)]
    taught = {lesson.task.name for lesson in lessons}
    for name in student.tasks:
        if find_task(name).name not in taught:
            files = ", ".join(str(file) for file in student.teacher)
            raise InputError(f"{files} teach nothing for task '{name}': add lessons or remove the task")
    return _drawn(student, lessons)


def _drawn(student: Student, lessons: list[Lesson]) -> list[Lesson]:
    """At most `per_task` lessons of each task, in their order."""
    if student.per_task is None:
        return lessons
    left = Counter(dict.fromkeys(student.tasks, student.per_task))
    kept = []
    for place in random.Random(student.seed).sample(range(len(lessons)), len(lessons)):
        if left[lessons[place].task.name]:
            left[lessons[place].task.name] -= 1
            kept.append(place)
    return [lessons[place] for place in sorted(kept)]


def ask_teacher(settings: Settings, student: Student, path: Path) -> None:
    """Have the student's teacher answer its tasks, through the generation store, and write a `LESSONS` table.

    An answer becomes a lesson if it can be parsed and passes the row rules of its table that need no facts.
    """
    from components.validation.rules.measuring.probes import find_probes

    assert isinstance(student.teacher, str)
    assert student.captions is not None
    probes = replace(find_probes(settings, EVALUATION), facts=None)
    lessons: list[Lesson] = []
    with closing(GenerationStore(settings.synthesize.store)) as store:
        import_replay(store, settings)
        engine = make_engine(settings.synthesize, student.teacher)
        for name, answered in ask_tasks(settings, student.tasks, student.captions, engine, store, path.parent):
            task = find_task(name)
            kept = passing(task, answered, settings, probes, {})
            taught = [
                Lesson(task, {text: found.source.inputs[text] for text in task.inputs}, found.text)
                for found, good in zip(answered, kept, strict=True)
                if good and found.text is not None
            ]
            print(f"{name}: {len(answered)} answers of the teacher, {len(taught)} lessons")
            lessons += taught
    _write(student, path, lessons)


def hash_of(lessons: Sequence[Lesson]) -> str:
    """Hash of every question, as sent to engines, and of its answer, in order."""
    parts = ((one.task.name, json.dumps([dict(part) for part in chat_of(one)]), one.answer) for one in lessons)
    return content_hash(*chain.from_iterable(parts))


def _write(student: Student, path: Path, lessons: Sequence[Lesson]) -> None:
    with LESSONS.writer(path, lambda: {_ASKED: _asked(student)}) as append:
        for block in batched(lessons, _BLOCK):
            append(
                {
                    "task": [lesson.task.name for lesson in block],
                    "inputs": [json.dumps(dict(lesson.inputs)) for lesson in block],
                    "answer": [lesson.answer for lesson in block],
                }
            )


def _read(student: Student, path: Path) -> list[Lesson]:
    again = "run `python -m components.students.students --lessons-only`"
    if not path.exists():
        raise InputError(f"{path} is missing: {again}")
    rows = LESSONS.read(path).to_pylist()
    if pq.read_metadata(path).metadata.get(_ASKED.encode()) != _asked(student).encode():
        raise InputError(f"{path} was made with other settings: {again}")
    return [Lesson(find_task(row["task"]), json.loads(row["inputs"]), row["answer"]) for row in rows]


def _asked(student: Student) -> str:
    return student.model_dump_json(include={"tasks", "teacher", "captions"})


Row = Mapping[str, str]
Draft = tuple[str, Inputs, str]
"""A task, its inputs and the answer."""

_JOINTS = re.compile(
    r"[;,]| (?:while|whereas|rather than|instead of|as opposed to|versus|against|compared|not|where)\b"
)
_CODES = re.compile(
    r"\b(?:IMG \d+|photo-\d+\.png|picture \d+:|ref \w+|stock (?:photo \w+|vector:?)|set with|print \w+|free download)"
    r"|BUY NOW!!|\[\w+\]|#\w+|\.(?:jpg|png)|\(clipart\)|@ best price|\b(?:background|backdrop|bg|wallpaper)\b"
)
_EDGES = re.compile(r"\s*(?:>>|[|/;:,@()&]|(?<!\w)-(?!\w))\s*")


def from_paraphrases(rows: Sequence[Row]) -> Iterator[Draft]:
    """Verdicts on a set of captions, plain sentences (x') and paraphrases of these (x'').

    A caption's own x'' keeps its meaning and contradicts nothing; for every other caption, the judge also sees the
    paraphrase of the most similar caption.
    """
    said = [_words(row["paraphrase_1"]) for row in rows]
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, words in enumerate(said):
        for word in words:
            places[word].append(place)
    for place, row in enumerate(rows):
        caption = row["caption"]
        yield "judge_paraphrase", {"caption": caption, "paraphrase": row["paraphrase_2"]}, "Yes"
        true = row["paraphrase_2" if place % 2 else "paraphrase_1"]
        yield "judge_negation", {"caption": caption, "negation": true}, "No"
        other = _most_alike(place, said, places) if place % 2 else None
        if other is not None:
            yield "judge_paraphrase", {"caption": caption, "paraphrase": rows[other]["paraphrase_2"]}, "No"


def from_edits(rows: Sequence[Row]) -> Iterator[Draft]:
    """Verdicts on negations, on captions with two things exchanged, and on differences."""
    differences = [row for row in rows if row["task"] == "difference"]
    for row in rows:
        if row["task"] == "swap_negative":
            yield "judge_paraphrase", {"caption": row["caption"], "paraphrase": row["answer"]}, "No"
        if row["task"] in ("swap_negative", "negate_semclip", "negate_terms"):
            yield "judge_negation", {"caption": row["caption"], "negation": row["answer"]}, "Yes"
    for place, row in enumerate(differences):
        yield from _scores(row, differences[place - 1], turned=place % 2 == 0)


def _scores(row: Row, other: Row, *, turned: bool) -> Iterator[Draft]:
    """A difference is right; wrong is one of other pictures or, if `turned`, its own with the captions exchanged."""
    one, two, difference = row["caption"], row["other_caption"], row["answer"]
    yield _score(one, two, difference, 1, "It is right about both images.")
    if turned:
        yield _score(two, one, difference, 0, "It takes image 1 for image 2.")
    else:
        yield _score(one, two, other["answer"], 0, "It tells of other images.")
    half = _first_side(difference, one, two)
    if half is not None and turned:
        yield _score(one, two, half, 0.5, "It leaves out image 2.")


def _score(one: str, two: str, difference: str, score: float, reasoning: str) -> Draft:
    answer = {
        "image1_description": described(one),
        "image2_description": described(two),
        "score": score,
        "reasoning": reasoning,
    }
    return "score_difference", {"difference": difference, "caption": one, "other_caption": two}, json.dumps(answer)


def described(caption: str) -> str:
    """The description in an alt-text, without codes and advertising."""
    text = _CODES.sub(" ", caption.replace("_", " "))
    parts = [" ".join(part.split()) for part in _EDGES.split(text)]
    words = [set(part.split()) for part in parts]
    repeated = [any(words[place] <= other for other in words[place + 1 :]) for place in range(len(parts))]
    return ", ".join(part for part, again in zip(parts, repeated, strict=True) if part and not again)


def _first_side(difference: str, one: str, two: str) -> str | None:
    """The longest beginning of a difference about only the first picture; None if there is none."""
    first, second = _words(one) - _words(two), _words(two) - _words(one)
    for joint in reversed(list(_JOINTS.finditer(difference))):
        head, rest = difference[: joint.start()], difference[joint.start() :]
        if _words(head) & first and not _words(head) & second and not _words(rest) & first and _words(rest) & second:
            return f"{head.rstrip(' ,;')}."
    return None


def _most_alike(place: int, said: Sequence[set[str]], places: Mapping[str, Sequence[int]]) -> int | None:
    """Place of the most similar other sentence that shares a rare word with the sentence at `place`."""
    own = said[place]
    for word in sorted(own, key=lambda word: (len(places[word]), word)):
        if others := [at for at in places[word] if said[at] != own]:
            return max(others, key=lambda at: sum(1 / len(places[shared]) for shared in own & said[at]))
    return None


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{2,}", text.lower().replace("_", " ")))


_ANSWER_COLUMNS = {
    "rewrite": "paraphrase_2",
    "paraphrase_semclip": "paraphrase_2",
    "query_paraphrase": "paraphrase_2",
    "name_absent": "absent_object",
    "state_absence": "absence",
    "name_unit": "unit",
    "change_unit": "unit_foil",
}
"""The columns of answers that are not named after their task."""
_SAME_ANSWERS = {"difference_cub": "difference"}
"""Tasks that share the answers of another task."""


@dataclass(frozen=True)
class Lesson:
    """A question, the teacher's answer, and the wording of the question that the student learns."""

    task: PromptTask
    inputs: Inputs
    answer: str
    prompt: str = "own"


def read_lessons(path: Path, tasks: Collection[str]) -> list[Lesson]:
    """The lessons of a teacher file for `tasks`, in the file's order, and then the derived ones.

    A file is tab-separated with a header. With a column `task` each row is one lesson: the task, its inputs by name
    and the `answer`. Without, each row holds a text per task, in a column named after the task. The lessons of
    judges are derived from right and wrong answers, see `derived_lessons`.
    """
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream, delimiter="\t")
            rows = list(reader)
    except FileNotFoundError:
        raise InputError(f"teacher set {path} is missing: restore it from git, or name another one") from None
    except UnicodeDecodeError as error:
        raise InputError(f"teacher set {path} is not UTF-8 (byte {error.start}): save it as UTF-8") from None
    except csv.Error as error:
        reason = f"line {reader.reader.line_num} cannot be read ({error}): close its quotes or shorten it"
        raise InputError(f"teacher set {path}: {reason}") from None
    lessons = [
        lesson for line, row in enumerate(rows, start=2) for name in tasks for lesson in _lessons(path, line, row, name)
    ]
    return lessons + derived_lessons(rows, tasks)


def derived_lessons(rows: Sequence[Row], tasks: Collection[str]) -> list[Lesson]:
    """The lessons for `tasks` that are derived from the rows of a teacher file."""
    columns = set(rows[0]) if rows else set()
    drafts: Iterator[Draft] = iter(())
    if columns >= {"task", "caption", "other_caption"}:
        drafts = from_edits(rows)
    elif columns >= {"caption", "paraphrase_1", "paraphrase_2"}:
        drafts = from_paraphrases(rows)
    return [Lesson(find_task(name), inputs, answer) for name, inputs, answer in drafts if name in tasks]


def _lessons(path: Path, line: int, row: Row, name: str) -> Iterator[Lesson]:
    """The lesson that a row has for a task, if any."""
    task = find_task(name)
    if "task" in row:
        if row["task"] == _SAME_ANSWERS.get(name, name):
            yield _lesson(path, line, row, task, "answer")
    elif (column := _ANSWER_COLUMNS.get(name, name)) in row:
        yield _lesson(path, line, row, task, column)


def _lesson(path: Path, line: int, row: Row, task: PromptTask, column: str) -> Lesson:
    inputs = {name: row.get("paraphrase_1" if name == "query" else name) or "" for name in task.inputs}
    lacking = [name for name, text in {**inputs, "answer": row[column]}.items() if not text]
    if lacking:
        raise InputError(f"{path}, line {line}: task '{task.name}' has no '{lacking[0]}': fill the column in")
    return Lesson(task, inputs, row[column])


def chat_of(lesson: Lesson) -> Chat:
    """The question of a lesson, as sent to engines."""
    return lesson.task.render({name: disarm(text) for name, text in lesson.inputs.items()}, lesson.prompt)
