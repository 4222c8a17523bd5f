"""The declaration of a synthesised table: its answers, and the checks of each answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd

from components.captions.prompting.task import PromptTask
from components.captions.prompting.tasks import find_task
from components.core.settings import Limits
from components.core.tables.records import key_of
from components.core.tables.table import Table
from components.validation.rules.measuring.probes import Probes


@dataclass(frozen=True)
class View:
    """The input of a check: the rows that have an answer.

    Attributes:
        texts: the answers.
        sources: the source of each answer.
        rows: all columns of these rows, see `join_answers`.
        task: the prompt task of the answers.
        probes: tokenizer, similarities, evaluation texts and facts.
    """

    texts: list[str]
    sources: list[str]
    rows: pd.DataFrame
    task: PromptTask
    probes: Probes


@dataclass(frozen=True)
class TextCheck:
    """One measure of an answer, and its limits.

    Attributes:
        column: the column's name, before the answer's suffix.
        reason: the reason for the rejection of a failing row, after the answer's name.
        measure: one value per row of the view.
        low: setting in `validate` with the smallest number allowed.
        high: setting with the largest number; without both, the column names a fault and must be null.
        switch: setting that turns the check on; off if it is null or false.
        paper: whether the table's paper or its released code also rejects by it.
        always: whether it rejects with any value of `validate.filters`.
    """

    column: str
    reason: str
    measure: Callable[[View], list[Any]]
    low: str | None = None
    high: str | None = None
    switch: str | None = None
    paper: bool = False
    always: bool = False

    def applies(self, limits: Limits) -> bool:
        """Whether a table's limits turn it on."""
        return self.switch is None or bool(getattr(limits, self.switch))

    def rejects(self, limits: Limits) -> bool:
        """Whether a table's limits reject rows by it."""
        wanted = self.paper if limits.filters == "paper" else limits.filters
        return self.applies(limits) and (wanted or self.always)

    @property
    def is_number(self) -> bool:
        """Whether it measures a number, and does not name faults."""
        return self.low is not None or self.high is not None


@dataclass(frozen=True)
class TableAnswer:
    """One answer of a row: its column in the validated table, its task, and its checks.

    `suffix` follows the names of the columns of its checks.
    """

    column: str
    task: str
    checks: tuple[TextCheck, ...]
    suffix: str = ""

    @property
    def source(self) -> str:
        """The column of the text that the task rewrites."""
        return find_task(self.task).inputs[0]


@dataclass(frozen=True)
class Synthesised:
    """A table that training reads.

    Attributes:
        table: its columns.
        answers: in the order of their questions; each is about the caption or an earlier answer.
        about: the subject of its first task; only captions are looked up in the pairs and have facts.
    """

    table: Table
    answers: tuple[TableAnswer, ...]
    about: Literal["captions", "classes", "queries"] = "captions"

    @property
    def name(self) -> str:
        """Its key in `validate.tables`."""
        return key_of(self.table)

    @property
    def sources(self) -> tuple[str, str]:
        """Columns of the first and of the second source of its first task."""
        if self.about == "captions":
            return "caption", "other_caption"
        inputs = find_task(self.answers[0].task).inputs
        return inputs[0], inputs[1] if len(inputs) > 1 else f"other_{inputs[0]}"

    def unjudged(self) -> Synthesised:
        """The same table with the candidates before their judge."""
        tasks = [find_task(answer.task).judges or answer.task for answer in self.answers]
        return replace(self, answers=tuple(replace(a, task=task) for a, task in zip(self.answers, tasks, strict=True)))

    @property
    def texts(self) -> list[str]:
        """Columns of all texts of a row: the sources, then the answers."""
        return [*self.sources, *(answer.column for answer in self.answers)]


def each(measure: Callable[[str, str], float | str | None]) -> Callable[[View], list[Any]]:
    """A measure of a view, from a measure of an answer and its source."""
    return lambda view: [measure(text, source) for text, source in zip(view.texts, view.sources, strict=True)]
