"""Stage `synthesize`: ask a language model one task's question about every row, each question only once.

python -m components.captions.synthesize --task paraphrase_1
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from components.captions.engine import Engine
from components.captions.engines import make_engine
from components.captions.sources import Source
from components.captions.store import GenerationStore, Request, Sampling
from components.captions.task import PromptTask
from components.captions.tasks import find_task
from components.errors import InputError, run_command
from components.progress import bar
from components.records import GENERATIONS
from components.settings import Settings, Task, load_settings

OUTPUT = Path("data/captions")


@dataclass(frozen=True)
class Counts:
    """What a run of the stage did."""

    replayed: int
    generated: int
    rejected: int


def run(settings: Settings, name: str, output: Path = OUTPUT, *, fresh: bool = False) -> Counts:
    """Write `<task>.parquet` with one row per question, and return the counts.

    Args:
        settings: all settings.
        name: the task, a key of `synthesize.tasks`.
        output: folder of the table.
        fresh: do not import `synthesize.replay` into the store first.

    Raises:
        InputError: the task, engine, store or input table is wrong.
    """
    if name not in settings.synthesize.tasks:
        raise InputError(f"params.yaml has no block synthesize.tasks.{name}: add one")
    task, asked = find_task(name), settings.synthesize.tasks[name]
    engine = make_engine(settings.synthesize, asked)
    store = GenerationStore(settings.synthesize.store)
    if settings.synthesize.replay is not None and not fresh:
        store.import_parquet(settings.synthesize.replay)
    limit = asked.captions or settings.synthesize.captions
    sources = task.reads(asked.input, task.accepts, limit, settings.world.seed)
    questions = [(source, attempt) for source in sources for attempt in range(asked.samples)]
    requests = [_request(task, asked, engine, source, attempt) for source, attempt in questions]
    answers = store.answers([request.key for request in requests])
    replayed = len(requests) - sum(request.key not in answers for request in requests)
    answers |= _generate(name, store, engine, [request for request in requests if request.key not in answers])
    store.close()
    rejected = _write(output / f"{name}.parquet", task, asked, questions, requests, answers)
    counts = Counts(replayed, len(requests) - replayed, rejected)
    print(f"{name}: replayed {counts.replayed}, generated {counts.generated}, rejected {counts.rejected}")
    return counts


def _request(task: PromptTask, asked: Task, engine: Engine, source: Source, attempt: int) -> Request:
    chat = tuple((message["role"], message["content"]) for message in task.messages(source.inputs))
    return Request(task.name, chat, engine.model, Sampling(asked.temperature, asked.top_p, asked.max_tokens), attempt)


def _generate(title: str, store: GenerationStore, engine: Engine, requests: list[Request]) -> dict[str, str]:
    """Answers to `requests`, every batch stored as it arrives; a question that occurs twice is asked once."""
    distinct = list({request.key: request for request in requests}.values())
    if not distinct:
        return {}
    answers: dict[str, str] = {}
    with bar(title, len(distinct), "generation") as progress:
        for batch in engine.answer(distinct):
            store.add(request.row(answer) for request, answer in batch)
            answers.update((request.key, answer) for request, answer in batch)
            progress.update(len(batch))
    return answers


def _write(
    path: Path,
    task: PromptTask,
    asked: Task,
    questions: list[tuple[Source, int]],
    requests: list[Request],
    answers: dict[str, str],
) -> int:
    """Write the table; returns how many answers could not be used."""
    texts = [task.parse(answers[request.key]) for request in requests]
    asked_about = [[source.inputs[name] for name in task.inputs] for source, _ in questions]
    GENERATIONS.write(
        path,
        {
            "id": [source.id for source, _ in questions],
            "sample": [source.sample * asked.samples + attempt for source, attempt in questions],
            "source": [about[0] for about in asked_about],
            "key": [request.key for request in requests],
            "accepted": [text is not None for text in texts],
            "text": list(texts),
            "reason": [None if text is not None else "unparsable" for text in texts],
            "other_id": [source.other_id for source, _ in questions],
            "other_source": [about[1] if len(about) > 1 else None for about in asked_about],
        },
    )
    return sum(text is None for text in texts)


def main(
    task: Annotated[str | None, typer.Option(help="A key of synthesize.tasks; all of them when not given.")] = None,
    fresh: Annotated[bool, typer.Option(help="Do not import synthesize.replay first.")] = False,
    export: Annotated[Path | None, typer.Option(help="Afterwards write the whole store to this Parquet file.")] = None,
) -> None:
    """Ask a language model a task's question about every row of its input table."""

    def command() -> None:
        settings = load_settings()
        for name in [task] if task is not None else settings.synthesize.tasks:
            run(settings, name, fresh=fresh)
        if export is not None:
            store = GenerationStore(settings.synthesize.store)
            print(f"wrote {store.export_parquet(export)} generations to {export}")
            store.close()

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
