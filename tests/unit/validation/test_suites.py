"""Suites find every failing row, in pandas as in a database, and keep nothing between runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sqlalchemy import create_engine, inspect

from components.core.errors import InputError
from components.validation.rules import Rule
from components.validation.suites import Suites

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
def pandas_suites() -> Suites:
    return Suites()


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'rows.db'}"


@pytest.fixture
def sql_suites(database: str) -> Iterator[Suites]:
    suites = Suites(database)
    yield suites
    suites.close()


def test_every_failing_row_is_found_with_all_its_reasons(pandas_suites: Suites) -> None:
    frame = frame_of(1000, first=5000)
    found = pandas_suites.check_rows("rows", frame, RULES)
    wanted: dict[int, list[str]] = {}
    for row in frame.to_dict("records"):
        reasons = ["length"] if row["words"] < 3 else []
        reasons += ["reserved_word"] if row["order"] > 0.5 else []
        reasons += [f"rejected:{row['rejected_answer']}"] if row["rejected_answer"] is not None else []
        wanted |= {row["row"]: reasons} if reasons else {}
    assert found.failures == wanted
    assert [entry["failing_rows"] for entry in found.expectations][2:] == [200, 0]
    assert not found.success


@pytest.mark.parametrize("rows", [0, 1, 700])
def test_a_database_finds_the_same(pandas_suites: Suites, sql_suites: Suites, database: str, rows: int) -> None:
    for first in (0, rows):
        frame = frame_of(rows, first)
        assert sql_suites.check_rows("rows", frame, RULES) == pandas_suites.check_rows("rows", frame, RULES)
    assert inspect(create_engine(database)).get_table_names() == []


@pytest.mark.parametrize(("share", "passes"), [(0.5, True), (0.25, False)])
def test_shares(pandas_suites: Suites, sql_suites: Suites, share: float, *, passes: bool) -> None:
    frame = pd.DataFrame({"row": [0], "accepted": [share]})
    rules = [Rule("accepted", "min_accepted_share", low=0.5)]
    found = pandas_suites.check_shares("shares", frame, rules)
    assert found == sql_suites.check_shares("shares", frame, rules)
    assert (found.success, found.expectations[0]["observed"]) == (passes, share)


def test_a_column_that_is_not_there_is_an_error(pandas_suites: Suites) -> None:
    with pytest.raises(KeyError):
        pandas_suites.check_rows("rows", frame_of(3), [Rule("nothing", "nothing")])


def test_the_table_is_gone_after_an_error(sql_suites: Suites, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no suite")

    monkeypatch.setattr("great_expectations.datasource.fluent.interfaces.Batch.validate", fail)
    with pytest.raises(RuntimeError, match="no suite"):
        sql_suites.check_rows("rows", frame_of(3), RULES)
    assert inspect(create_engine(database)).get_table_names() == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("no url with geheim in it", r"validate\.database is no SQLAlchemy URL"),
        ("nodatabase://me:geheim@127.0.0.1/x", r"validate\.database is no SQLAlchemy URL"),
        (
            "postgresql://me:geheim@127.0.0.1:1/x?password=geheim",
            r"database postgresql://me:\*\*\*@127.0.0.1:1/x cannot",
        ),
    ],
)
def test_a_database_that_is_none_is_one_line_without_its_password(url: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Suites(url)
    assert "geheim" not in str(caught.value)
    assert "\n" not in str(caught.value)
