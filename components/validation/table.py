"""What a synthesised table declares: its answers, and what is measured of each and must hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd

from components.captions.task import PromptTask
from components.captions.tasks import find_task
from components.core.records import key_of
from components.core.settings import Limits
from components.core.table import Table
from components.validation.measuring.probes import Probes


@dataclass(frozen=True)
class View:
    """The rows that have an answer, as a check sees them.

    Attributes:
        texts: the answers.
        sources: the text that each was asked about.
        rows: all columns of these rows, see `join_answers`.
        task: the prompt task that asked.
        probes: what measuring needs from outside.
    """

    texts: list[str]
    sources: list[str]
    rows: pd.DataFrame
    task: PromptTask
    probes: Probes


@dataclass(frozen=True)
class TextCheck:
    """One column measured of an answer and what it must be.

    Attributes:
        column: the column's name, before the answer's suffix.
        reason: why a row that fails is rejected, behind the answer's name.
        measure: one value per row of the view.
        low: the limit of `validate` that is the smallest number allowed.
        high: the one that is the largest; with neither, the column names a fault and must be null.
        switch: the one that turns the check on; off where that is null or false.
        paper: whether the table's paper or its released code rejects by it, too.
        always: whether it rejects whatever `validate.filters` says.
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
        """Whether a table's limits leave it on."""
        return self.switch is None or bool(getattr(limits, self.switch))

    def rejects(self, limits: Limits) -> bool:
        """Whether a table's limits reject rows by it."""
        wanted = self.paper if limits.filters == "paper" else limits.filters
        return self.applies(limits) and (wanted or self.always)

    @property
    def is_number(self) -> bool:
        """Whether it measures a number and does not name faults."""
        return self.low is not None or self.high is not None


@dataclass(frozen=True)
class TableAnswer:
    """One answer of a row: its column in the validated table, the task that gives it, and its checks.

    `suffix` stands behind the names of the columns that are measured of it.
    """

    column: str
    task: str
    checks: tuple[TextCheck, ...]
    suffix: str = ""

    @property
    def source(self) -> str:
        """The column of the text that the task was asked about."""
        return find_task(self.task).inputs[0]


@dataclass(frozen=True)
class Synthesised:
    """A table that training reads.

    Attributes:
        table: its columns.
        answers: in the order in which they were asked; each is asked about the caption or an answer before it.
        about: what its first task asks about; only captions are looked up in the pairs and have facts.
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
        """Columns of the first and of the second text that its first task asks about."""
        if self.about == "captions":
            return "caption", "other_caption"
        inputs = find_task(self.answers[0].task).inputs
        return inputs[0], inputs[1] if len(inputs) > 1 else f"other_{inputs[0]}"

    def unjudged(self) -> Synthesised:
        """The same table with the candidates as they were before their judge saw them."""
        tasks = [find_task(answer.task).judges or answer.task for answer in self.answers]
        return replace(self, answers=tuple(replace(a, task=task) for a, task in zip(self.answers, tasks, strict=True)))

    @property
    def texts(self) -> list[str]:
        """Columns of all texts of a row: those asked about, then the answers."""
        return [*self.sources, *(answer.column for answer in self.answers)]


def each(measure: Callable[[str, str], float | str | None]) -> Callable[[View], list[Any]]:
    """A measure of a whole view from one of an answer and its source."""
    return lambda view: [measure(text, source) for text, source in zip(view.texts, view.sources, strict=True)]
