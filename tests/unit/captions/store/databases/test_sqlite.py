"""What SQLite refuses without waiting is asked for again."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from components.captions.store.databases.sqlite import DIALECT


class Refusing(sqlite3.Connection):
    """A connection whose first statements fail as SQLite's do."""

    refusals: list[str]

    def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        if self.refusals and "journal_mode" in statement:
            raise sqlite3.OperationalError(self.refusals.pop())
        return super().execute(statement, *parameters)


def journal_mode(path: Path, refusals: list[str]) -> str:
    factory = type("Refused", (Refusing,), {"refusals": refusals})
    engine = create_engine("sqlite://", creator=lambda: sqlite3.connect(path, factory=factory))
    DIALECT.listen(engine)
    try:
        with DIALECT.reading(engine) as connection:
            return str(connection.exec_driver_sql("PRAGMA journal_mode").scalar())
    finally:
        engine.dispose()


def test_a_log_that_another_process_makes_at_this_moment_is_waited_for(tmp_path: Path) -> None:
    assert journal_mode(tmp_path / "store.db", ["database is locked"] * 3) == "wal"


def test_what_no_waiting_fixes_is_said_at_once(tmp_path: Path) -> None:
    refusals = ["disk I/O error"] * 3
    with pytest.raises((OperationalError, sqlite3.OperationalError), match="disk I/O error"):
        journal_mode(tmp_path / "store.db", refusals)
    assert len(refusals) == 2
