"""Suites find every failing row and keep nothing between runs."""

from __future__ import annotations

import pandas as pd
import pytest

from components.captions.validation.rules.table import Rule
from components.captions.validation.suites import Suites

RULES = [
    Rule("words", "length", 3.0, 30.0),
    Rule("order", "reserved_word", high=0.5),
    Rule("rejected_answer", "rejected"),
    Rule("leak", "leak"),
]


def frame_of(rows: int, first: int = 0) -> pd.DataFrame:
    """Rows of which a third are too short, a few are rejected with odd texts, and none leaks."""
    numbers = list(range(first, first + rows))
    odd = ['it\'s "odd"', "100% $HOME {x} :y", "\u2603\nline", "a;b"]
    return pd.DataFrame(
        {
            "row": numbers,
            "words": [None if row % 7 == 0 else float(row % 3 + 2) for row in numbers],
            "order": [row / (first + rows) for row in numbers],
            "rejected_answer": pd.Series([odd[row % 4] if row % 5 == 0 else None for row in numbers], dtype=object),
            "leak": pd.Series([None] * rows, dtype=object),
        }
    )


@pytest.fixture(scope="module")
def suites() -> Suites:
    return Suites()


def test_every_failing_row_is_found_with_all_its_reasons(suites: Suites) -> None:
    frame = frame_of(1000, first=5000)
    found = suites.check_rows("rows", frame, RULES)
    wanted: dict[int, list[str]] = {}
    for row in frame.to_dict("records"):
        reasons = ["length"] if row["words"] < 3 else []
        reasons += ["reserved_word"] if row["order"] > 0.5 else []
        reasons += [f"rejected:{row['rejected_answer']}"] if row["rejected_answer"] is not None else []
        wanted |= {row["row"]: reasons} if reasons else {}
    assert found.failures == wanted
    assert [entry["failing_rows"] for entry in found.expectations][2:] == [200, 0]
    assert not found.success


def test_shares(suites: Suites) -> None:
    for share, passes in ((0.5, True), (0.25, False)):
        frame = pd.DataFrame({"row": [0], "accepted": [share]})
        found = suites.check_shares("shares", frame, [Rule("accepted", "min_accepted_share", low=0.5)])
        assert (found.success, found.expectations[0]["observed"]) == (passes, share)
