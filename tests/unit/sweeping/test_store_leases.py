"""Claims of dead workers and claims whose lease is over are given back; those of living workers stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from components.captions.store import GenerationStore
from components.captions.store.database import Database
from components.core.worker_identity import new_worker
from components.sweeping.store_leases import sweep_leases


@pytest.fixture
def store(tmp_path: Path) -> Database:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    GenerationStore(url).close()
    return Database(url)


def _claims(store: Database) -> dict[str, str]:
    rows = store.read(lambda found: found.execute(text("SELECT key, worker FROM claims ORDER BY key")).all())
    return {row.key: row.worker for row in rows}


def test_what_dead_workers_hold_is_given_back(store: Database, tmp_path: Path) -> None:
    alive = new_worker()
    host, _, started, _ = alive.split(" ")
    dead, elsewhere = f"{host} {2**22 + 7} {started} abcd", f"elsewhere 1 {started} abcd"
    rows = [("a", alive, 1000), ("b", dead, 1000), ("c", elsewhere, 1000), ("d", elsewhere, -1000), ("e", dead, -1000)]
    insert = f"INSERT INTO claims (key, worker, lease_end) VALUES (:key, :worker, {store.dialect.now} + :seconds)"
    bound = [dict(zip(("key", "worker", "seconds"), row, strict=True)) for row in rows]
    store.write(lambda found: found.execute(text(insert), bound))
    url = f"sqlite:///{tmp_path / 'store.db'}"
    dry = sweep_leases(url, True)
    assert len(_claims(store)) == 5
    assert sweep_leases(url, False) == dry
    assert {(one.subject, one.reason) for one in dry} == {
        (f"2 claims of {dead}", "the worker is dead"),
        (f"1 claims of {elsewhere}", "the lease is over"),
    }
    assert _claims(store) == {"a": alive, "c": elsewhere}
    store.close()


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    assert sweep_leases(f"sqlite:///{path}", False) == []
    assert not path.exists()
