"""The measures of every answer, and the rules of rows and of shares of rows: one rule per expectation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from components.captions.prompting.tasks import find_task
from components.core.settings import Limits
from components.validation.rules.measuring.probes import Probes
from components.validation.rules.table import Synthesised, TableAnswer, View


def measured(name: str, answer: TableAnswer) -> str:
    """The column of the check `name` of an answer."""
    return f"{name}{answer.suffix}"


def add_columns(
    joined: pd.DataFrame, table: Synthesised, limits: Limits, probes: Probes, repeated: npt.NDArray[np.int64]
) -> pd.DataFrame:
    """`joined` with a column for every active check of every answer, null without an answer.

    The column of a check has numbers, or names of faults and null without a fault. Column `duplicate` marks the rows
    that are `repeated`.
    """
    derived: dict[str, pd.Series[Any]] = {}
    for answer in table.answers:
        present = joined[joined[answer.source].notna() & joined[answer.column].notna()]
        texts, sources = present[answer.column].tolist(), present[answer.source].tolist()
        view = View(texts, sources, present, find_task(answer.task), probes)
        for check in (check for check in answer.checks if check.applies(limits)):
            kind = np.float64 if check.is_number else object
            values = pd.Series(check.measure(view), index=present.index, dtype=kind)
            derived[measured(check.column, answer)] = values.reindex(joined.index)
    sample = pd.Series("sample", index=joined.index, dtype=object)
    derived["duplicate"] = sample.where(joined["row"].isin(repeated))
    return joined.assign(**{name: _nullable(column) for name, column in derived.items()})


def _nullable(column: pd.Series[Any]) -> pd.Series[Any]:
    return column if column.dtype == np.float64 else column.astype(object).where(column.notna(), None)


@dataclass(frozen=True)
class Rule:
    """One expectation on one derived column.

    Attributes:
        column: the checked column.
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
