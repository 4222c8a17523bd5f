"""Which answers to a task would pass the row rules of its validated table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from components.captions.request import Source
from components.captions.task import PromptTask
from components.captions.tasks import find_task
from components.core.settings import Settings
from components.encoders.adapter.architecture import model_config
from components.students.questions import Answered
from components.validation.measuring.probes import Probes
from components.validation.rules import Rule, measured, row_rules
from components.validation.table import Synthesised, TableAnswer, View
from components.validation.tables import synthesised_tables


def passing(
    task: PromptTask, answered: Sequence[Answered], settings: Settings, probes: Probes, facts: Mapping[str, str]
) -> list[bool]:
    """Whether each answer could be parsed and passes the rules; a verdict or an answer without a table always does.

    Args:
        task: the task that was answered.
        answered: its answers.
        settings: `validate` has the limits, `base.model` the encoder's context.
        probes: what measuring needs from outside.
        facts: what pictures show, by the id of their pair; where a row's are not known, rules that need them are
            left out.
    """
    good = [found.text is not None for found in answered]
    table = None if task.judges is not None else _table_of(task)
    if table is None:
        return good
    for known in (True, False):
        rows = [
            row for row, found in enumerate(answered) if found.text is not None and _is_known(found, facts) == known
        ]
        fitting = probes if known else replace(probes, facts=None)
        checked = _check(table, [answered[row] for row in rows], settings, fitting, facts) if rows else []
        for row, passes in zip(rows, checked, strict=True):
            good[row] = passes
    return good


def _is_known(found: Answered, facts: Mapping[str, str]) -> bool:
    return found.source.id in facts and (found.source.other_id is None or found.source.other_id in facts)


def _table_of(task: PromptTask) -> Synthesised | None:
    """The first table with an answer to `task`, or to a judge of it, and that answer alone, as if unjudged."""
    for table in synthesised_tables().values():
        for answer in table.answers:
            if task.name in (answer.task, find_task(answer.task).judges):
                return replace(table, answers=(replace(answer, task=task.name),))
    return None


def _check(
    table: Synthesised, answered: Sequence[Answered], settings: Settings, probes: Probes, facts: Mapping[str, str]
) -> list[bool]:
    """Whether each answer passes the rules of the table's one answer; repeats are no matter of a single answer."""
    (answer,) = table.answers
    rows = _rows(answer, [found.source for found in answered], facts)
    texts = [found.text or "" for found in answered]
    view = View(texts, rows[answer.source].tolist(), rows, find_task(answer.task), probes)
    context = model_config(settings.base.model)["text_cfg"].get("context_length", 77)
    rules = {rule.column: rule for rule in row_rules(table, settings.validation.limits(table.name), context)}
    good = [True] * len(texts)
    for check in answer.checks:
        rule = rules.get(measured(check.column, answer))
        if rule is not None:
            fulfilled = [_fulfils(value, rule) for value in check.measure(view)]
            good = [before and now for before, now in zip(good, fulfilled, strict=True)]
    return good


def _rows(answer: TableAnswer, sources: Sequence[Source], facts: Mapping[str, str]) -> pd.DataFrame:
    """What checks may look at besides an answer's own text, one row per source."""
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
    """As the suites expect it: a fault must not be named, and what was not measured keeps every limit."""
    if rule.names_faults:
        return value is None
    if value is None or math.isnan(float(value)):
        return True
    return (rule.low is None or float(value) >= rule.low) and (rule.high is None or float(value) <= rule.high)
