"""A store's tables come to be once, whoever opens it first, and a store from before there were versions is kept."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect, text

from components.captions.store import GenerationStore, migration
from components.captions.store.database import Database
from components.captions.store.schema import GENERATIONS, HEAD, METADATA
from components.core.errors import InputError
from tests.support.store_rows import keys, replies, requests

REPO = Path(__file__).parents[4]
OPENING = """
import sys
from components.captions.store import GenerationStore
sys.stdin.readline()
GenerationStore(sys.argv[1]).close()
print("alembic" in sys.modules)
"""


def _execute(url: str, statement: str) -> Any:
    database = Database(url)
    found = database.write(lambda connection: connection.execute(text(statement)).rowcount)
    database.close()
    return found


def _open_at_once(url: str, processes: int) -> list[str]:
    """Open a store in several processes; what each says of Alembic."""
    command = [sys.executable, "-c", OPENING, url]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = [subprocess.Popen(command, text=True, **pipes) for _ in range(processes)]
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    done = [process.communicate() for process in running]
    assert [error for _, error in done] == [""] * processes
    return [output.strip() for output, _ in done]


def test_the_newest_migration_gives_the_tables_that_the_code_knows(store_url: str) -> None:
    store = GenerationStore(store_url)
    with store._database.streaming() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    assert ScriptDirectory(str(migration.SCRIPTS)).get_heads() == [HEAD]


def test_a_store_from_before_there_were_versions_is_taken_over(store_url: str) -> None:
    database = Database(store_url)
    with database.migrating() as connection:
        GENERATIONS.create(connection)
    rows = ", ".join(f"('{key}', 't', 'p', 'm', 's', 0, 'kept', '2024-01-01')" for key in keys(requests(20)))
    database.write(lambda connection: connection.execute(text(f"INSERT INTO generations VALUES {rows}")))
    database.close()
    store = GenerationStore(store_url)
    assert store.answers(keys(requests(20))) == dict.fromkeys(keys(requests(20)), "kept")
    with store.claims() as claims:
        assert claims.take(keys(requests(21))) == {requests(21)[20].key}
    with store._database.streaming() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []


def test_opening_an_up_to_date_store_changes_nothing_and_needs_no_alembic(store_url: str) -> None:
    store = GenerationStore(store_url)
    store.add(replies(requests(3)))
    store.close()
    assert _open_at_once(store_url, 1) == ["False"]
    assert GenerationStore(store_url).count() == 3


def test_several_processes_may_open_a_new_store_at_once(store_url: str) -> None:
    assert "True" in _open_at_once(store_url, 4)
    assert GenerationStore(store_url).stats().rows == 0


def test_a_store_of_a_newer_version_is_left_alone(store_url: str) -> None:
    GenerationStore(store_url).close()
    _execute(store_url, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(InputError, match=rf"its tables have version 9999, this one knows {HEAD}\): update cliptune"):
        GenerationStore(store_url)


def test_a_store_of_an_older_version_goes_on_from_there(store_url: str) -> None:
    GenerationStore(store_url).close()
    for table in ("claims", "failures", "imports"):
        _execute(store_url, f"DROP TABLE {table}")
    _execute(store_url, "UPDATE alembic_version SET version_num = '0001'")
    assert GenerationStore(store_url).stats().live_claims == 0


def test_a_migration_that_fails_leaves_the_store_as_it_was(store_url: str) -> None:
    _execute(store_url, "CREATE TABLE claims (other INTEGER)")
    with pytest.raises(InputError, match=r"cannot be opened .*claims"):
        GenerationStore(store_url)
    _execute(store_url, "DROP TABLE claims")
    database = Database(store_url)
    with database.streaming() as connection:
        assert inspect(connection).get_table_names() == []
    database.close()
    assert GenerationStore(store_url).count() == 0


def test_migrations_are_found_where_the_package_is_installed(tmp_path: Path) -> None:
    installed = tmp_path / "odd % folder"
    shutil.copytree(REPO / "components", installed / "components", ignore=shutil.ignore_patterns("assets", "*.pyc"))
    url = f"sqlite:///{installed / 'store.db'}"
    code = f"from components.captions.store import GenerationStore; GenerationStore({url!r})"
    subprocess.run([sys.executable, "-c", code], cwd=installed, check=True)
    assert "claims" in inspect(create_engine(url)).get_table_names()
