"""What became of a table's rows: for summary.json, for the terminal, and for the error when a limit is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table as View

from components.settings import Validate
from components.validation.suites import SuiteResult

_TOP_REASONS = 3


@dataclass(frozen=True)
class Outcome:
    """One table's rows and its suites: over all rows, over the shares, and over the accepted rows."""

    table: str
    rows: int
    accepted: int
    reasons: Counter[str]
    answers: SuiteResult
    shares: SuiteResult
    kept: SuiteResult

    @property
    def passed(self) -> bool:
        """Whether every share keeps its limit and every accepted row its rules."""
        return self.shares.success and self.kept.success

    def summary(self) -> dict[str, Any]:
        """Counts, reasons and expectations, for JSON."""
        suites = (self.answers, self.shares, self.kept)
        return {
            "passed": self.passed,
            "rows": self.rows,
            "accepted": self.accepted,
            "quarantined": self.rows - self.accepted,
            "rejected_by_reason": dict(self.reasons),
            "expectations": [expectation for suite in suites for expectation in suite.expectations],
        }


def show(outcomes: Iterable[Outcome]) -> None:
    """Print how many rows of each table are accepted, and the reasons for the rest."""
    view = View(title="synthesised tables")
    for heading in ("table", "reason"):
        view.add_column(heading)
    for heading in ("rows", "share"):
        view.add_column(heading, justify="right")
    for outcome in outcomes:
        share = f"{outcome.accepted / outcome.rows:.1%}"
        view.add_section()
        view.add_row(outcome.table, f"accepted of {outcome.rows}", str(outcome.accepted), share, style="bold")
        for reason, count in outcome.reasons.most_common():
            view.add_row("", reason, str(count), f"{count / outcome.rows:.1%}")
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
