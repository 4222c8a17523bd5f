"""Tasks put to one engine, each after those whose answers it asks about, apart from the pipeline's own tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

from more_itertools import batched

from components.captions.asking.answers import write_answers
from components.captions.asking.asking import ask
from components.captions.asking.questions import Questions, questions_of
from components.captions.engines import Engine
from components.captions.request import Source
from components.captions.store import GenerationStore
from components.core.errors import InputError
from components.core.settings import Settings, Task

_BLOCK = 1000


@dataclass(frozen=True)
class Answered:
    """What was asked about, and the answer's text; None where there is none or it could not be used."""

    source: Source
    text: str | None


def ask_tasks(
    settings: Settings,
    tasks: Sequence[str],
    captions: int,
    engine: Engine,
    store: GenerationStore,
    folder: Path,
    pairs: Path | None = None,
) -> Iterator[tuple[str, list[Answered]]]:
    """Yield each task with its answers, one per row of inputs, in the questions' order.

    Args:
        settings: all settings; `synthesize.tasks` says what each task reads and how its answers are drawn.
        tasks: keys of `synthesize.tasks`.
        captions: how many captions, or pairs of them, each task is asked about.
        engine: who answers.
        store: where answers are looked up and kept.
        folder: where the tables are written that other tasks read.
        pairs: a `PAIRS` table to read in place of the tasks' own.

    Raises:
        InputError: params.yaml lacks a task, or a task asks about the answers to one that is not among `tasks`.
    """
    needs = {name: needed_task(settings, name) for name in tasks}
    for name, needed in needs.items():
        if needed is not None and needed not in tasks:
            raise InputError(f"params.yaml: task '{name}' asks about the answers to '{needed}': add that one too")
    moved = _moved(settings, needs, captions, folder, pairs)
    for name in TopologicalSorter({name: [needed] if needed else [] for name, needed in needs.items()}).static_order():
        questions = questions_of(moved, name, engine)
        ask(store, engine, questions.read(), name, questions.most)
        if name in needs.values():
            write_answers(folder / f"{name}.parquet", store, questions)
        yield name, list(_answered(store, questions))


def needed_task(settings: Settings, name: str) -> str | None:
    """The task whose table `name` reads, None where it reads something else.

    Raises:
        InputError: params.yaml has no such task.
    """
    if name not in settings.synthesize.tasks:
        raise InputError(f"params.yaml has no block synthesize.tasks.{name}: add one")
    return settings.synthesize.before(name)


def _moved(
    settings: Settings, needs: Mapping[str, str | None], captions: int, folder: Path, pairs: Path | None
) -> Settings:
    """The settings with each task asked once about `captions` captions, from the tables it shall read."""
    tasks: dict[str, Task] = dict(settings.synthesize.tasks)
    for name, needed in needs.items():
        given = folder / f"{needed}.parquet" if needed is not None else pairs or tasks[name].input
        tasks[name] = tasks[name].model_copy(
            update={"input": given, "samples": 1, "captions": captions, "pairs": None, "pictures": False}
        )
    synthesize = settings.synthesize.model_copy(update={"tasks": tasks})
    return settings.model_copy(update={"synthesize": synthesize})


def _answered(store: GenerationStore, questions: Questions) -> Iterator[Answered]:
    for block in batched(questions.read(), _BLOCK):
        answers = store.answers(list({question.key for question in block}))
        for question in block:
            answer = answers.get(question.key)
            yield Answered(question.source, None if answer is None else questions.task.parse(answer))
