"""What a synthesised table declares: its answers, and what is measured of each and must hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from components.captions.task import PromptTask
from components.captions.tasks import find_task
from components.records import Table
from components.validation.probes import Probes


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
class Check:
    """One column measured of an answer and what it must be.

    Attributes:
        column: the column's name, before the answer's suffix.
        reason: why a row that fails is rejected, behind the answer's name.
        measure: one value per row of the view.
        low: the limit of `validate` that is the smallest number allowed.
        high: the one that is the largest; with neither, the column names a fault and must be null.
    """

    column: str
    reason: str
    measure: Callable[[View], list[Any]]
    low: str | None = None
    high: str | None = None

    @property
    def is_number(self) -> bool:
        """Whether it measures a number and does not name faults."""
        return self.low is not None or self.high is not None


@dataclass(frozen=True)
class Answer:
    """One answer of a row: its column in the validated table, the task that gives it, and its checks.

    `suffix` stands behind the names of the columns that are measured of it.
    """

    column: str
    task: str
    checks: tuple[Check, ...]
    suffix: str = ""

    @property
    def source(self) -> str:
        """The column of the text that the task was asked about."""
        return find_task(self.task).inputs[0]


@dataclass(frozen=True)
class Synthesised:
    """A table that training reads.

    Attributes:
        name: its file in data/validated, its key in `validate.tables`, and its file here.
        table: its columns.
        answers: in the order in which they were asked; each is asked about the caption or an answer before it.
        quarantine: file name of its rejected rows.
    """

    name: str
    table: Table
    answers: tuple[Answer, ...]
    quarantine: str


def each(measure: Callable[[str, str], float | str | None]) -> Callable[[View], list[Any]]:
    """A measure of a whole view from one of an answer and its source."""
    return lambda view: [measure(text, source) for text, source in zip(view.texts, view.sources, strict=True)]
