"""The declaration of a synthesised table, the measures of its answers, and its rules: one per expectation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from components.captions.prompting.task import PromptTask
from components.captions.prompting.tasks import find_task
from components.captions.validation.rules.probes import Probes
from components.core.settings import Limits
from components.core.tables.records import key_of
from components.core.tables.table import Table
from components.core.text import common_texts, normalised
from components.core.text.languages import ENGLISH


@dataclass(frozen=True)
class View:
    """The input of a check: the rows that have an answer; `rows` has all their columns, see `join_answers`."""

    texts: list[str]
    sources: list[str]
    rows: pd.DataFrame
    task: PromptTask
    probes: Probes
    languages: list[str]
    """Those of the captions."""

    def where(self, chosen: Sequence[bool]) -> View:
        """The chosen rows."""
        columns = (self.texts, self.sources, self.languages)
        texts, sources, languages = (list(compress(column, chosen)) for column in columns)
        return View(texts, sources, self.rows[np.array(chosen)], self.task, self.probes, languages)


@dataclass(frozen=True)
class TextCheck:
    """One measure of an answer, and its limits.

    Attributes:
        reason: the reason for the rejection of a failing row, after the answer's name.
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
    """One answer of a row; `suffix` follows the names of the columns of its checks."""

    column: str
    task: str
    checks: tuple[TextCheck, ...]
    suffix: str = ""

    @property
    def source(self) -> str:
        """The column of the text that the task rewrites."""
        return find_task(self.task).inputs[0]

    @property
    def is_whole(self) -> bool:
        """Whether it is about the whole caption, and is compared with it in meaning."""
        return any(check.column == "similarity" for check in self.checks)


@dataclass(frozen=True)
class Synthesised:
    """A table that training reads.

    Attributes:
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


def each_in_language(measure: Callable[[str, str, str], str | None]) -> Callable[[View], list[Any]]:
    """A measure of a view, from a measure of an answer, its source and the caption's language."""
    return lambda view: [measure(*row) for row in zip(view.texts, view.sources, view.languages, strict=True)]


def in_english(measure: Callable[[View], list[Any]]) -> Callable[[View], list[Any]]:
    """A measure of the rows with English captions, null of others."""

    def measured(view: View) -> list[Any]:
        english = [language == ENGLISH for language in view.languages]
        found = iter(measure(view.where(english)) if any(english) else ())
        return [next(found) if one else None for one in english]

    return measured


def measured(name: str, answer: TableAnswer) -> str:
    """The column of the check `name` of an answer."""
    return f"{name}{answer.suffix}"


def add_columns(
    joined: pd.DataFrame,
    table: Synthesised,
    limits: Limits,
    probes: Probes,
    repeated: npt.NDArray[np.int64],
    constant: Sequence[int] | npt.NDArray[np.int64] = (),
) -> pd.DataFrame:
    """`joined` with a column for every active check of every answer, null without an answer.

    The column of a check has numbers, or names of faults and null without a fault. Column `duplicate` marks the rows
    that are `repeated`, and those whose answers are `constant`.
    """
    derived: dict[str, pd.Series[Any]] = {}
    languages = joined[table.sources[0]].map(probes.language_of, na_action="ignore")
    for answer in table.answers:
        present = joined[joined[answer.source].notna() & joined[answer.column].notna()]
        texts, sources = present[answer.column].tolist(), present[answer.source].tolist()
        view = View(texts, sources, present, find_task(answer.task), probes, languages[present.index].tolist())
        for check in (check for check in answer.checks if check.applies(limits)):
            kind = np.float64 if check.is_number else object
            values = pd.Series(check.measure(view), index=present.index, dtype=kind)
            derived[measured(check.column, answer)] = values.reindex(joined.index)
    sample = pd.Series("sample", index=joined.index, dtype=object)
    duplicate = sample.where(joined["row"].isin(repeated))
    derived["duplicate"] = duplicate.mask(joined["row"].isin(constant), "constant")
    return joined.assign(**{name: _nullable(column) for name, column in derived.items()})


def constant_rows(pairs: Sequence[tuple[str, str]], share: float) -> list[int]:
    """The rows, pairs of an answer and its source, whose answer at least three sources share, and `share` of all."""
    common = common_texts(pairs, max(3, share * len({source for _, source in pairs})))
    return [row for row, (text, _) in enumerate(pairs) if normalised(text) in common]


def _nullable(column: pd.Series[Any]) -> pd.Series[Any]:
    return column if column.dtype == np.float64 else column.astype(object).where(column.notna(), None)


@dataclass(frozen=True)
class Rule:
    """One expectation on one derived column.

    Attributes:
        reason: the reason for the rejection of a failing row, or the setting that a share breaks.
        low: smallest number allowed.
        high: largest number allowed; without both, the column names a fault and must be null.
    """

    column: str
    reason: str
    low: float | None = None
    high: float | None = None

    @property
    def names_faults(self) -> bool:
        """Whether its column has names of faults, not numbers."""
        return self.low is None and self.high is None

    def explain(self, value: Any) -> str:
        """The reason of a failing row, with the fault if the column names faults."""
        return f"{self.reason}:{value}" if self.names_faults else self.reason


def row_rules(table: Synthesised, limits: Limits, context_length: int) -> list[Rule]:
    """The rules of every row of a table; `context_length` is the encoder's, in tokens.

    A check that is switched off has no rule, nor has a limit of null; see `Limits.filters`.
    """
    values = limits.model_dump() | {"context_length": context_length}
    rules = []
    for answer in table.answers:
        rules.append(Rule(f"rejected_{answer.column}", f"{answer.column}_rejected"))
        for check in (check for check in answer.checks if check.rejects(limits)):
            low, high = (None if name is None else values[name] for name in (check.low, check.high))
            if not check.is_number or low is not None or high is not None:
                rules.append(Rule(measured(check.column, answer), f"{answer.column}_{check.reason}", low, high))
    rules.append(Rule("duplicate", "duplicate"))
    return rules


def share_rules(limits: Limits) -> list[Rule]:
    """The rules of the whole table; the mean of a column is the share of its marked rows."""
    return [
        Rule("accepted", "min_accepted_share", low=limits.min_accepted_share),
        Rule("echo", "max_echo_share", high=limits.max_echo_share),
        Rule("leak", "max_leak_share", high=limits.max_leak_share),
    ]
