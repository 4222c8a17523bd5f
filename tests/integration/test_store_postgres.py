"""A store in PostgreSQL: connections break, the server stops, workers race, and nothing is lost or done twice."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

import psycopg
import pytest
from more_itertools import batched
from sqlalchemy import event

from components.captions.generating.asking import ask
from components.captions.generating.store import GenerationStore, database
from components.captions.generating.store.database import METADATA
from components.captions.prompting.request import Reply, Request
from components.core.system.errors import InputError
from tests.integration.postgres import PostgresServer
from tests.support.store_rows import failures, keys, replies, requests

pytestmark = pytest.mark.integration
REQUESTS = requests(10)
KEYS = keys(REQUESTS)


def _terminate(server: PostgresServer, url: str) -> None:
    """End every connection to a database, as an administrator may."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [url.rpartition("/")[2]]
        )


def _wait_for_a_lock(url: str, thread: threading.Thread) -> None:
    """Return when the thread waits for the transaction of another connection."""
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (0,):
            assert thread.is_alive()


def test_a_run_continues_while_connections_are_terminated(postgres_server: PostgresServer, postgres_url: str) -> None:
    received: list[str] = []

    class Echo:
        model = "m"

        def answer(self, wanted: Iterable[Request]) -> Iterator[list[Reply]]:
            for number, batch in enumerate(batched(wanted, 16)):
                received.extend(keys(batch))
                if number % 5 == 0:
                    _terminate(postgres_server, postgres_url)
                yield replies(batch)

    store = GenerationStore(postgres_url)
    assert ask(store, Echo(), requests(600), "t", None).generated == 600
    assert sorted(received) == sorted(keys(requests(600)))
    assert store.stats().rows == 600


def test_a_stopped_server_is_reported_in_one_line_and_nothing_is_lost(
    own_postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database, "RETRY_S", 0.5)
    store = GenerationStore(own_postgres_server.new_database())
    store.add(replies(REQUESTS[:3]))
    own_postgres_server.stop()
    for attempt in (lambda: store.add(replies(REQUESTS[3:])), lambda: store.answers(KEYS)):
        with pytest.raises(InputError, match=r"generation store postgresql://\S+ failed \(.*refused") as caught:
            attempt()
        assert "run the same command again" in str(caught.value)
        assert own_postgres_server.password not in str(caught.value)
    assert "is unavailable" in caplog.text
    assert own_postgres_server.password not in caplog.text
    own_postgres_server.start()
    store.add(replies(REQUESTS[3:]))
    assert len(store.answers(KEYS)) == 10


def test_opening_a_store_waits_while_another_process_makes_its_tables(postgres_url: str) -> None:
    their, opened = database.Database(postgres_url), list[GenerationStore]()
    with their.migrating() as connection:
        opening = threading.Thread(target=lambda: opened.append(GenerationStore(postgres_url)))
        opening.start()
        _wait_for_a_lock(postgres_url, opening)
        METADATA.create_all(connection)
    opening.join()
    assert opened[0].count() == 0


def test_workers_with_the_same_rows_in_different_orders_do_not_deadlock(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    wanted = requests(400)
    GenerationStore(postgres_url).close()

    def work(order: int) -> None:
        store = GenerationStore(postgres_url)
        for _ in range(10):
            store.add([*failures(wanted[:200]), *failures(wanted[200:])][::order])
        store.add(replies(wanted)[::order])
        store.close()

    threads = [threading.Thread(target=work, args=(order,)) for order in (1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with psycopg.connect(postgres_url) as connection:
        row = connection.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
    assert row == (0,)
    assert GenerationStore(postgres_url).count() == 400


def test_a_group_of_rows_costs_few_round_trips(postgres_url: str) -> None:
    store, statements = GenerationStore(postgres_url), list[str]()
    event.listen(store._database._engine, "before_cursor_execute", lambda *seen: statements.append(seen[2]))
    statements.clear()
    store.add([*replies(REQUESTS[:5]), *failures(REQUESTS[5:])])
    store.answers(KEYS)
    assert len(statements) == 5
