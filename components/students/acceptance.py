"""Shares of the answers of base and student that validation would accept, on questions without lessons."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from heapq import nsmallest
from pathlib import Path
from tempfile import TemporaryDirectory

from components.captions.generating.engines import Engine
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import InputRow, Request, Sampling
from components.captions.prompting.tasks import find_task
from components.core.settings import Settings, Student, Task
from components.core.tables.files import content_hash
from components.core.tables.records import PAIRS
from components.students.answers import AnsweredRow, ask_tasks, needed_task, passing
from components.students.lessons import EVALUATION, Lesson, chat_of
from components.validation.rules.measuring.probes import Probes, find_probes

TRAIN_PAIRS = Path("data/pairs/train.parquet")


@dataclass(frozen=True)
class Examination:
    """Questions that are not among a student's lessons.

    Attributes:
        by_caption: tasks about captions, and tasks about their answers.
        lessons: held-out lessons of the other tasks, by task.
        facts: facts of their pictures, by pair; empty where there are none.
    """

    settings: Settings
    captions: int
    by_caption: list[str]
    lessons: dict[str, list[Lesson]]
    pairs: Path
    facts: dict[str, str]
    probes: Probes

    def rates(self, engine: Engine) -> dict[str, float]:
        """Share of the engine's answers that pass the row rules of their table, by task.

        A judge's verdict passes when it is the held-out lesson's.
        """
        with (
            TemporaryDirectory(dir=self.pairs.parent) as name,
            closing(GenerationStore(f"sqlite:///{Path(name) / 'answers.db'}")) as store,
        ):
            asked = ask_tasks(self.settings, self.by_caption, self.captions, engine, store, Path(name), self.pairs)
            rates = {task: self._rate(task, answered) for task, answered in asked}
        return rates | {task: self._rate_lessons(task, engine) for task in self.lessons}

    def _rate(self, name: str, answered: Sequence[AnsweredRow]) -> float:
        passes = passing(find_task(name), answered, self.settings, self.probes, self.facts)
        return sum(passes) / max(len(passes), 1)

    def _rate_lessons(self, name: str, engine: Engine) -> float:
        task, lessons = find_task(name), self.lessons[name]
        asked = self.settings.synthesize.tasks.get(name, Task(table=name, input=TRAIN_PAIRS))
        sampling = Sampling(asked.temperature, asked.top_p, asked.max_tokens)
        chats = [tuple((message["role"], message["content"]) for message in chat_of(lesson)) for lesson in lessons]
        requests = [Request(name, chat, engine.model, sampling, 0) for chat in chats]
        replies = {reply.request.key: reply.answer for batch in engine.answer(requests) for reply in batch}
        answers = [replies[request.key] for request in requests]
        texts = [None if answer is None else task.parse(answer) for answer in answers]
        if task.judges is not None:
            right = [task.parse(lesson.answer) for lesson in lessons]
            return sum(text == verdict for text, verdict in zip(texts, right, strict=True)) / len(lessons)
        rows = zip(requests, lessons, texts, strict=True)
        return self._rate(name, [AnsweredRow(InputRow(one.key, 0, lesson.inputs), text) for one, lesson, text in rows])


def prepare_examination(
    settings: Settings, student: Student, lessons: Sequence[Lesson], held_out: Sequence[Lesson], folder: Path
) -> Examination:
    """An examination in a student's tasks; a table of captions without `lessons` is written to `folder`."""
    by_caption = _about_captions(settings, student.tasks)
    pairs, facts = folder / "pairs.parquet", {}
    if by_caption:
        taught = {lesson.inputs["caption"] for lesson in lessons if "caption" in lesson.inputs}
        facts = _draw_captions(pairs, taught, student.acceptance, settings.dataset.seed)
    others = {
        task: [lesson for lesson in held_out if lesson.task.name == task][: student.acceptance]
        for task in student.tasks
        if task not in by_caption
    }
    asked = {task: found for task, found in others.items() if found}
    probes = find_probes(settings, EVALUATION)
    return Examination(settings, student.acceptance, by_caption, asked, pairs, facts, probes)


def _about_captions(settings: Settings, tasks: Sequence[str]) -> list[str]:
    """The tasks about training captions, or about the answers of such tasks; without judges."""
    chosen_tasks: list[str] = []
    left = [name for name in tasks if name in settings.synthesize.tasks and find_task(name).judges is None]
    while chosen := [
        name
        for name in left
        if settings.synthesize.tasks[name].input == TRAIN_PAIRS or needed_task(settings, name) in chosen_tasks
    ]:
        chosen_tasks += chosen
        left = [name for name in left if name not in chosen]
    return chosen_tasks


def _draw_captions(path: Path, taught: set[str], count: int, seed: int) -> dict[str, str]:
    """Write `count` training captions that are not `taught` as a `PAIRS` table; returns their facts by pair."""
    kept = ("id", "image_id", "caption", "facts")
    rows = (row for block in PAIRS.blocks(TRAIN_PAIRS, kept) for row in block.to_pylist())
    untaught = (row for row in rows if row["caption"] not in taught)
    drawn = nsmallest(count, untaught, key=lambda row: content_hash(str(seed), row["id"]))
    # No question shows pictures here, but the contract requires some bytes.
    columns = {name: [row[name] for row in drawn] for name in kept}
    PAIRS.write(path, {**columns, "image": [b"none"] * len(drawn)})
    return {row["id"]: row["facts"] for row in drawn if row["facts"]}
