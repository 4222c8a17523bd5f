"""What became of a table's rows: for summary.json, for the terminal, and for the error when a limit is broken.

Rows stand for a whole table there; which ones does not depend on how the table is cut into shards.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.markup import escape
from rich.table import Table as View

from components.core.settings import Validate
from components.validation.suites import SuiteResult

DOCUMENTED = 10_000
"""Rows of a table that its Data Docs look at, at most."""

MOST_REASONS = 200
"""Reasons of a table that its reports name, at most: reasons may hold text from outside."""

_EXAMPLES = 5


def sample_rows(rows: int, most: int = DOCUMENTED) -> npt.NDArray[np.int64]:
    """Numbers of `most` of the rows, each as likely as any other, sorted; of all rows when there are no more."""
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(0).choice(rows, most, replace=False)).astype(np.int64)


@dataclass(frozen=True)
class Example:
    """A rejected row: its pair and sample, its texts by column, and every reason that applied."""

    row: int
    id: str
    sample: int
    texts: Mapping[str, str]
    reasons: tuple[str, ...]


@dataclass
class Examples:
    """A few rejected rows for each reason, each as likely as any other with that reason.

    Only the first `MOST_REASONS` reasons that occur get examples.
    """

    _kept: dict[str, list[tuple[int, int, Example]]] = field(default_factory=dict)

    def add(self, examples: Iterable[Example]) -> None:
        """Consider rejected rows."""
        for example in examples:
            place = _place(example.row)
            for reason in example.reasons:
                kept = self._kept.get(reason)
                if kept is None and len(self._kept) >= MOST_REASONS:
                    continue
                kept = self._kept.setdefault(reason, [])
                heapq.heappush(kept, (-place, -example.row, example))
                if len(kept) > _EXAMPLES:
                    heapq.heappop(kept)

    def of(self, reason: str) -> list[Example]:
        """The examples of a reason, in the order of the table."""
        return sorted((example for *_, example in self._kept.get(reason, [])), key=lambda example: example.row)


def _place(row: int) -> int:
    """A place in an order of chance that is the same in every run."""
    return int.from_bytes(hashlib.blake2b(row.to_bytes(8, "big"), digest_size=8).digest(), "big")


_TOP_REASONS = 3
_NO_METRIC = r"[^A-Za-z0-9_\-. /]"
_LONGEST = 120
"""Characters of a reason in a metric's name."""


@dataclass
class Account:
    """One suite over a table's shards: each expectation with its failing rows in all of them."""

    success: bool = True
    expectations: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, result: SuiteResult) -> None:
        """Add what the suite found in a shard."""
        self.success &= result.success
        for found in result.expectations:
            known = self.expectations.setdefault(found["column"], found | {"success": True, "failing_rows": 0})
            known["success"] &= found["success"]
            known["failing_rows"] += found["failing_rows"]


@dataclass
class Tally:
    """What is counted of a table, shard by shard.

    Attributes:
        marked: rows by mark: those that are accepted, that echo the prompt, that give evaluation away.
        answers: the row suite over all rows.
        kept: the row suite over the accepted rows, which fulfils itself unless a rule and its reasons disagree.
    """

    rows: int = 0
    shards: int = 0
    marked: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    examples: Examples = field(default_factory=Examples)
    answers: Account = field(default_factory=Account)
    kept: Account = field(default_factory=Account)

    def shares(self) -> dict[str, float]:
        """The share of rows with each mark."""
        return {mark: count / self.rows for mark, count in self.marked.items()}


@dataclass(frozen=True)
class Outcome:
    """One table's rows, the suite of its shares, and how many rows its tasks did not ask about, by task and reason."""

    table: str
    tally: Tally
    shares: SuiteResult
    skipped: Mapping[str, Mapping[str, int]]

    @property
    def rows(self) -> int:
        """How many rows the table has, accepted or not."""
        return self.tally.rows

    @property
    def accepted(self) -> int:
        """How many rows training may see."""
        return self.tally.marked["accepted"]

    @property
    def reasons(self) -> Counter[str]:
        """How many rows were rejected for each reason; a row may have several."""
        return self.tally.reasons

    @property
    def passed(self) -> bool:
        """Whether every share keeps its limit and every accepted row its rules."""
        return self.shares.success and self.tally.kept.success

    def summary(self) -> dict[str, Any]:
        """Counts, reasons and expectations, for JSON."""
        tally = self.tally
        return {
            "passed": self.passed,
            "rows": self.rows,
            "accepted": self.accepted,
            "quarantined": self.rows - self.accepted,
            "shards": tally.shards,
            "rejected_by_reason": dict(self.reasons),
            "skipped_questions": {task: dict(reasons) for task, reasons in self.skipped.items()},
            "expectations": [
                *tally.answers.expectations.values(), *self.shares.expectations, *tally.kept.expectations.values()
            ],
        }  # fmt: skip


def show(outcome: Outcome) -> None:
    """Print how many rows of the table are accepted, and the reasons for the rest."""
    view = View(title="synthesised tables")
    for heading in ("table", "reason"):
        view.add_column(heading)
    for heading in ("rows", "share"):
        view.add_column(heading, justify="right")
    share = f"{outcome.accepted / outcome.rows:.1%}"
    view.add_row(outcome.table, f"accepted of {outcome.rows}", str(outcome.accepted), share, style="bold")
    for reason, count in outcome.reasons.most_common():
        view.add_row("", escape(reason), str(count), f"{count / outcome.rows:.1%}")
    Console().print(view)


def broken_limits(outcome: Outcome, settings: Validate) -> list[str]:
    """One sentence for each table-level limit that a table breaks, with the commonest reasons."""
    limits = settings.limits(outcome.table).model_dump()
    own = settings.tables[outcome.table].model_fields_set if outcome.table in settings.tables else set()
    top = ", ".join(f"{reason} ({count})" for reason, count in outcome.reasons.most_common(_TOP_REASONS))
    faults = []
    for fault in outcome.shares.expectations:
        if not fault["success"]:
            name = fault["reason"]
            where = f"validate.tables.{outcome.table}.{name}" if name in own else f"validate.{name}"
            share = f"{outcome.table}: {fault['column']} share {fault['observed']:.3f}"
            faults.append(f"{share} breaks {where} {limits[name]} (top reasons: {top})")
    return faults


def metrics_of(outcome: Outcome) -> dict[str, float]:
    """Counts of a table as MLflow metrics `validate/<table>/...`.

    Reasons keep the characters that MLflow takes; the rarest of very many are left out.
    """
    metrics: Counter[str] = Counter()
    for reason, count in outcome.reasons.most_common(MOST_REASONS):
        metrics[f"rejected/{re.sub(_NO_METRIC, '_', reason)[:_LONGEST]}"] += count
    shares = {f"{mark}_share": share for mark, share in outcome.tally.shares().items()}
    counts = {"rows": outcome.rows, "accepted": outcome.accepted, "quarantined": outcome.rows - outcome.accepted}
    skipped = {"skipped_questions": sum(sum(reasons.values()) for reasons in outcome.skipped.values())}
    found = counts | shares | skipped | metrics
    return {f"validate/{outcome.table}/{name}": float(value) for name, value in found.items()}
