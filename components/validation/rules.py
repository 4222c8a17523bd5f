"""What a row must fulfil and what share of rows must: one line per expectation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from components.settings import Validate


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

    def explain(self, value: Any) -> str:
        """The reason of a failing row; a column of faults adds which one."""
        return f"{self.reason}:{value}" if self.low is None and self.high is None else self.reason


def row_rules(limits: Validate, context_length: int) -> list[Rule]:
    """The rules of every row; `context_length` is the encoder's, in tokens."""
    return [
        *_answer_rules(1, limits, context_length),
        *_answer_rules(2, limits, context_length),
        Rule("new_words_2", "paraphrase_2_few_new_words", low=limits.min_new_words),
        Rule("duplicate", "duplicate"),
    ]


def _answer_rules(side: int, limits: Validate, context_length: int) -> list[Rule]:
    answer = f"paraphrase_{side}"
    return [
        Rule(f"rejected_{side}", f"{answer}_rejected"),
        Rule(f"words_{side}", f"{answer}_length", low=limits.min_words, high=limits.max_words),
        Rule(f"tokens_{side}", f"{answer}_tokens", high=context_length),
        Rule(f"copied_{side}", f"{answer}_copies"),
        Rule(f"echo_{side}", f"{answer}_echo"),
        Rule(f"leak_{side}", f"{answer}_leak"),
        Rule(f"fault_{side}", f"{answer}_fault"),
        Rule(f"similarity_{side}", f"{answer}_similarity", low=limits.min_similarity),
    ]


def share_rules(limits: Validate) -> list[Rule]:
    """The rules of the whole table; each column's mean is the share of rows it marks."""
    return [
        Rule("accepted", "min_accepted_share", low=limits.min_accepted_share),
        Rule("echo", "max_echo_share", high=limits.max_echo_share),
        Rule("leak", "max_leak_share", high=limits.max_leak_share),
    ]
