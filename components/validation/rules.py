"""What a row must fulfil and what share of rows must: one line per expectation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from components.core.settings import Limits
from components.validation.measuring.columns import measured
from components.validation.table import Synthesised


@dataclass(frozen=True)
class Rule:
    """One expectation on one derived column.

    Attributes:
        column: the column it looks at.
        reason: why a row that fails is rejected, or the setting that a share breaks.
        low: smallest number allowed.
        high: largest number allowed; with neither, the column names a fault and must be null.
    """

    column: str
    reason: str
    low: float | None = None
    high: float | None = None

    @property
    def names_faults(self) -> bool:
        """Whether its column names faults and does not hold numbers."""
        return self.low is None and self.high is None

    def explain(self, value: Any) -> str:
        """The reason of a failing row; a column of faults adds which one."""
        return f"{self.reason}:{value}" if self.names_faults else self.reason


def row_rules(table: Synthesised, limits: Limits, context_length: int) -> list[Rule]:
    """The rules of every row of a table; `context_length` is the encoder's, in tokens.

    A limit of null is none, and a check that is switched off has none.
    """
    values = limits.model_dump() | {"context_length": context_length}
    rules = []
    for answer in table.answers:
        rules.append(Rule(f"rejected_{answer.column}", f"{answer.column}_rejected"))
        for check in (check for check in answer.checks if check.applies(limits)):
            low, high = (None if name is None else values[name] for name in (check.low, check.high))
            if not check.is_number or low is not None or high is not None:
                rules.append(Rule(measured(check.column, answer), f"{answer.column}_{check.reason}", low, high))
    rules.append(Rule("duplicate", "duplicate"))
    return rules


def share_rules(limits: Limits) -> list[Rule]:
    """The rules of the whole table; each column's mean is the share of rows it marks."""
    return [
        Rule("accepted", "min_accepted_share", low=limits.min_accepted_share),
        Rule("echo", "max_echo_share", high=limits.max_echo_share),
        Rule("leak", "max_leak_share", high=limits.max_leak_share),
    ]
