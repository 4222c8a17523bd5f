"""The validate stage with its suites inside a real PostgreSQL gives what pandas gives, and leaves nothing there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import psycopg
import pytest

from components.core.errors import InputError
from components.validation.rules import Rule
from components.validation.suites import Suites
from components.validation.validate import Files
from tests.unit.validation.conftest import Answer, read_outcome, run_stage

pytestmark = pytest.mark.integration
RULES = [Rule("words", "length", 3.0, 30.0), Rule("order", "reserved_word", high=0.5), Rule("leak", "leak")]
FAULTS: list[dict[str, Any]] = [
    {},
    {"text_1": "dog cat"},
    {"text_2": "Hidden query: a little pup beside some big kitty, all scarlet."},
    {"text_1": None, "found_2": False, "reason_1": 'failed: it\'s "odd" <b> $x {y} %s; \x00\n\u2603'},
    {"found_2": False},
]


def _tables(url: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute("select relname from pg_class where relname like 'cliptune%'").fetchall()


def _written(folder: Path) -> Any:
    outcome = read_outcome(Files(project=folder, quarantine=folder / "quarantine"))
    return outcome.accepted, outcome.quarantine, outcome.summary


def test_the_stage_writes_the_same(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.validation.validate.write_docs", lambda *_: None)
    answers = [Answer(pair=pair, **FAULTS[pair % len(FAULTS)]) for pair in range(12)]
    answers.append(Answer(sample=1))
    run_stage(tmp_path / "pandas", answers, shard_rows=5)
    run_stage(tmp_path / "sql", answers, shard_rows=5, database=postgres_url)
    assert _written(tmp_path / "sql") == _written(tmp_path / "pandas")
    assert _tables(postgres_url) == []


def test_all_of_very_many_failing_rows_are_named(postgres_url: str) -> None:
    rows = list(range(12_000))
    frame = pd.DataFrame(
        {
            "row": rows,
            "words": [None if row % 7 == 0 else float(row % 3 + 2) for row in rows],
            "order": [row / 12_000 for row in rows],
            "leak": pd.Series(["word" if row % 2 else None for row in rows], dtype=object),
        }
    )
    suites, plain = Suites(postgres_url), Suites()
    try:
        assert suites.check_rows("rows", frame, RULES) == plain.check_rows("rows", frame, RULES)
    finally:
        suites.close()


def test_a_server_that_goes_away_is_one_line(own_postgres_server: Any) -> None:
    url = own_postgres_server.new_database()
    suites = Suites(url)
    own_postgres_server.stop()
    frame = pd.DataFrame({"row": [0], "accepted": [1.0]})
    with pytest.raises(InputError, match=r"validate\.database") as caught:
        suites.check_shares("shares", frame, [Rule("accepted", "min_accepted_share", low=0.5)])
    suites.close()
    assert own_postgres_server.password not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_password_with_odd_signs(postgres_server: Any, run_sql: Callable[[str], None]) -> None:
    run_sql("create role odd login password 'a$HOME/{b}@:%1'")
    run_sql("grant all on schema public to odd")
    url = f"postgresql://odd:a%24HOME%2F%7Bb%7D%40%3A%251@127.0.0.1:{postgres_server.port}/postgres"
    suites = Suites(url)
    frame = pd.DataFrame({"row": [0], "accepted": [1.0]})
    try:
        assert suites.check_shares("shares", frame, [Rule("accepted", "min_accepted_share", low=0.5)]).success
    finally:
        suites.close()
        run_sql("drop owned by odd")
        run_sql("drop role odd")


@pytest.fixture
def run_sql(postgres_server: Any) -> Callable[[str], None]:
    """Runs a statement as the server's administrator."""

    def run(statement: str) -> None:
        with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
            connection.execute(statement)

    return run
