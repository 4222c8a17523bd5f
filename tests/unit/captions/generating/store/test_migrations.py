"""A store's tables are created once, whichever process opens it first, and stores of older versions keep answers."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from components.captions.generating.store import GenerationStore
from components.captions.generating.store.database import FAILURES, GENERATIONS, IMPORTS, METADATA, Database
from components.core.system.errors import InputError
from components.core.tables.formats import STORE
from tests.support.store_rows import keys, replies, requests

OPENING = """
import sys
from components.captions.generating.store import GenerationStore
sys.stdin.readline()
GenerationStore(sys.argv[1]).close()
"""
CLAIMS = "CREATE TABLE claims (key VARCHAR(64) PRIMARY KEY, worker VARCHAR(255), lease_end DOUBLE PRECISION)"
VERSIONS = "CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY)"


def _execute(database: Database, *statements: str) -> None:
    for statement in statements:
        database.write(lambda connection, statement=statement: connection.execute(text(statement)))  # type: ignore[misc]


def test_several_processes_may_open_a_new_store_at_once(store_url: str) -> None:
    command = [sys.executable, "-c", OPENING, store_url]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = [subprocess.Popen(command, text=True, **pipes) for _ in range(3)]
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate()[1] for process in running] == [""] * 3
    assert GenerationStore(store_url).stats().rows == 0


@pytest.mark.parametrize("version", [None, "0001", "0002"])
def test_a_store_of_an_older_version_keeps_its_answers(store_url: str, version: str | None) -> None:
    database = Database(store_url)
    with database.migrating() as connection:
        GENERATIONS.create(connection)
        if version == "0002":
            METADATA.create_all(connection, [FAILURES, IMPORTS])
    if version is not None:
        _execute(database, VERSIONS, f"INSERT INTO alembic_version VALUES ('{version}')")
    if version == "0002":
        _execute(database, CLAIMS, "INSERT INTO claims VALUES ('a key', 'a worker', 1e12)")
    rows = ", ".join(f"('{key}', 't', 'p', 'm', 's', 0, 'kept', '2024-01-01')" for key in keys(requests(20)))
    _execute(database, f"INSERT INTO generations VALUES {rows}")
    database.close()
    store = GenerationStore(store_url)
    store.add(replies(requests(21)))
    answers = store.answers(keys(requests(21)))
    assert answers == dict.fromkeys(keys(requests(20)), "kept") | {requests(21)[20].key: "an answer"}
    with store._database.streaming() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []


def test_a_store_of_a_newer_version_is_left_unchanged(store_url: str) -> None:
    store = GenerationStore(store_url)
    _execute(store._database, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(InputError, match=rf"it has format 9999, this one reads {STORE}\): update cliptune"):
        GenerationStore(store_url)


def test_a_migration_that_fails_leaves_the_store_as_it_was(store_url: str) -> None:
    database = Database(store_url)
    # A view of this name cannot be dropped as a table.
    _execute(database, "CREATE VIEW claims AS SELECT 1 AS other")
    with pytest.raises(InputError, match=r"cannot be opened .*claims"):
        GenerationStore(store_url)
    _execute(database, "DROP VIEW claims")
    with database.streaming() as connection:
        assert inspect(connection).get_table_names() == []
    database.close()
    assert GenerationStore(store_url).count() == 0
