"""Answers of an engine to several tasks, and whether they would pass the row rules of their validated table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from pathlib import Path

import pandas as pd

from components.captions.generating.asking import ask, stored_texts, write_answers
from components.captions.generating.engines import Engine
from components.captions.generating.questions import questions_of
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import InputRow
from components.captions.prompting.task import PromptTask
from components.captions.prompting.tasks import find_task
from components.core.settings import Settings, Task
from components.core.system.errors import InputError
from components.encoders.adapter.model_configs import model_config
from components.validation.rules.measuring.probes import Probes
from components.validation.rules.table import Rule, Synthesised, TableAnswer, View, measured, row_rules
from components.validation.rules.tables import synthesised_tables


@dataclass(frozen=True)
class AnsweredRow:
    """A row of inputs and the text of its answer; None where there is none or it cannot be used."""

    source: InputRow
    text: str | None


def ask_tasks(
    settings: Settings,
    tasks: Sequence[str],
    captions: int,
    engine: Engine,
    store: GenerationStore,
    folder: Path,
    pairs: Path | None = None,
) -> Iterator[tuple[str, list[AnsweredRow]]]:
    """Yield each task with its answers, one per row of inputs, in the questions' order.

    `captions` is the number of captions, or pairs of them, per task; a `PAIRS` table replaces the tasks' inputs.
    """
    needs = {name: needed_task(settings, name) for name in tasks}
    for name, needed in needs.items():
        if needed is not None and needed not in tasks:
            raise InputError(f"params.yaml: task '{name}' needs the answers of '{needed}': add that task")
    moved = _moved(settings, needs, captions, folder, pairs)
    for name in TopologicalSorter({name: [needed] if needed else [] for name, needed in needs.items()}).static_order():
        questions = questions_of(moved, name, engine)
        ask(store, engine, questions.read(), name, questions.most)
        if name in needs.values():
            write_answers(folder / f"{name}.parquet", store, questions)
        yield name, [AnsweredRow(row, text) for row, text in stored_texts(store, questions)]


def needed_task(settings: Settings, name: str) -> str | None:
    """The task whose table `name` reads, None where it reads something else."""
    if name not in settings.synthesize.tasks:
        raise InputError(f"params.yaml has no block synthesize.tasks.{name}: add one")
    return settings.synthesize.before(name)


def _moved(
    settings: Settings, needs: Mapping[str, str | None], captions: int, folder: Path, pairs: Path | None
) -> Settings:
    """The settings with one sample per task about `captions` captions, and the moved inputs."""
    tasks: dict[str, Task] = dict(settings.synthesize.tasks)
    for name, needed in needs.items():
        given = folder / f"{needed}.parquet" if needed is not None else pairs or tasks[name].input
        tasks[name] = tasks[name].model_copy(
            update={"input": given, "samples": 1, "max_captions": captions, "pairs": None, "pictures": False}
        )
    synthesize = settings.synthesize.model_copy(update={"tasks": tasks})
    return settings.model_copy(update={"synthesize": synthesize})


def passing(
    task: PromptTask, answered: Sequence[AnsweredRow], settings: Settings, probes: Probes, facts: Mapping[str, str]
) -> list[bool]:
    """Whether each answer could be parsed and passes the rules; a verdict or an answer without a table always does."""
    good = [found.text is not None for found in answered]
    table = None if task.judges is not None else _table_of(task)
    if table is None:
        return good
    for known in (True, False):
        rows = [
            row
            for row, found in enumerate(answered)
            if found.text is not None and ({found.source.id, found.source.other_id} - {None} <= facts.keys()) == known
        ]
        fitting = probes if known else replace(probes, facts=None)
        checked = _check(table, [answered[row] for row in rows], settings, fitting, facts) if rows else []
        for row, passes in zip(rows, checked, strict=True):
            good[row] = passes
    return good


def _table_of(task: PromptTask) -> Synthesised | None:
    """The first table with an answer to `task`, or to a judge of it, and that answer alone, as if unjudged."""
    for table in synthesised_tables().values():
        for answer in table.answers:
            if task.name in (answer.task, find_task(answer.task).judges):
                return replace(table, answers=(replace(answer, task=task.name),))
    return None


def _check(
    table: Synthesised, answered: Sequence[AnsweredRow], settings: Settings, probes: Probes, facts: Mapping[str, str]
) -> list[bool]:
    """Whether each answer passes the rules of the table's one answer; rules about repeated answers do not apply."""
    (answer,) = table.answers
    rows = _rows(answer, [found.source for found in answered], facts)
    texts = [found.text or "" for found in answered]
    languages = list(map(probes.language_of, rows["caption"]))
    view = View(texts, rows[answer.source].tolist(), rows, find_task(answer.task), probes, languages)
    context = model_config(settings.base.model)["text_cfg"].get("context_length", 77)
    rules = {rule.column: rule for rule in row_rules(table, settings.validation.limits(table.name), context)}
    good = [True] * len(texts)
    for check in answer.checks:
        rule = rules.get(measured(check.column, answer))
        if rule is not None:
            fulfilled = [_fulfils(value, rule) for value in check.measure(view)]
            good = [before and now for before, now in zip(good, fulfilled, strict=True)]
    return good


def _rows(answer: TableAnswer, sources: Sequence[InputRow], facts: Mapping[str, str]) -> pd.DataFrame:
    """The columns that checks read besides an answer's text, one row per source."""
    inputs = find_task(answer.task).inputs
    columns: dict[str, list[str | None]] = {
        "id": [source.id for source in sources],
        "caption": [source.inputs.get("caption", source.inputs[inputs[0]]) for source in sources],
        "facts": [facts.get(source.id) for source in sources],
        "other_id": [source.other_id for source in sources],
        "other_caption": [source.inputs.get("other_caption") for source in sources],
        "other_facts": [facts.get(source.other_id or "") for source in sources],
    }
    return pd.DataFrame(columns | {name: [source.inputs[name] for source in sources] for name in inputs}, dtype=object)


def _fulfils(value: float | str | None, rule: Rule) -> bool:
    """As in the validation suites: a fault must not be named, and a missing value passes every limit."""
    if rule.names_faults:
        return value is None
    if value is None or math.isnan(float(value)):
        return True
    return (rule.low is None or float(value) >= rule.low) and (rule.high is None or float(value) <= rule.high)
