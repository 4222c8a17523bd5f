"""A real PostgreSQL: the store of answers in it, and its rows as a folder of embeddings."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from more_itertools import batched
from sqlalchemy import event

from components.captions.generating.asking import ask
from components.captions.generating.store import GenerationStore, database
from components.captions.generating.store.database import METADATA
from components.captions.prompting.request import Reply, Request
from components.core.system.errors import InputError
from components.data.vector_databases import copying
from components.data.vector_databases.copying import copy, look
from components.data.vector_databases.store import Page
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


def test_workers_with_rows_in_other_orders_do_not_deadlock(postgres_server: PostgresServer, postgres_url: str) -> None:
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


@pytest.fixture
def url(pgvector_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """LangChain's table with two collections, of vectors of two lengths, and a table whose column is being filled."""
    monkeypatch.setattr(copying, "_ROWS", 25)
    url = pgvector_server.new_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE EXTENSION vector")
        connection.execute(
            "CREATE TABLE store (id text PRIMARY KEY, collection_id uuid, document text, cmetadata jsonb, "
            "price numeric, embedding vector)"
        )
        connection.execute(
            "INSERT INTO store SELECT 'i' || lpad(n::text, 3, '0'), md5((n % 2)::text)::uuid, 'item ' || n, "
            "jsonb_build_object('sku', n / 10), 9.5, "
            "(CASE n % 2 WHEN 0 THEN ARRAY[n, 1, 2] ELSE ARRAY[n, 1] END)::real[]::vector FROM generate_series(0, 99) n"
        )
        connection.execute("CREATE TABLE items (n int, sku text, title text, embedding vector(2))")
        connection.execute(
            "INSERT INTO items SELECT n, CASE WHEN n < 97 THEN 's' || n / 3 END, 'item ' || n, "
            "CASE WHEN n >= 60 THEN ARRAY[n, 1]::real[]::vector END FROM generate_series(0, 99) n"
        )
    return url


def _copied(folder: Path) -> pa.Table:
    return pa.concat_tables(pq.read_table(file) for file in sorted(folder.iterdir()))


def test_one_of_several_collections_is_read_and_a_shared_table_pointed_out(url: str, tmp_path: Path) -> None:
    stored = f"{url}?table=store"
    with pytest.raises(InputError, match="have 2 and 3 numbers: choose one kind with vector=, or its rows with where="):
        look(stored, "document")
    first = look(f"{stored}&where=vector_dims(embedding)=3", "document")
    assert (first.rows, first.dim, first.captions[1]) == (50, 3, "item 2")
    condition = quote("collection_id = md5('1')::uuid -- the model of today")
    assert copy(f"{stored}&where={condition}", tmp_path / "shop", "document") == 50
    (row,) = _copied(tmp_path / "shop").slice(4, 1).to_pylist()
    assert (row["id"], row["key"], row["document"], row["embedding"]) == ("i009", "i009", "item 9", [9.0, 1.0])
    assert (row["cmetadata"], row["price"], len(row["collection_id"])) == ({"sku": 0}, "9.5", 36)
    for where, message in (
        ("price", "where=price: argument of .* must be type boolean"),
        ("x = 1", "where=x = 1: column"),
    ):
        with pytest.raises(InputError, match=message):
            look(f"{stored}&where={quote(where)}", "document")
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE store SET embedding = '[1,2]'")
    (note,) = look(f"{url}?table=store", "document").notes
    assert note.startswith("column collection_id has 2 values, such as '")
    where = note.partition(" with where=")[2]
    assert look(f"{url}?table=store&where={where}", "document").rows == 50


def test_rows_without_vectors_double_keys_and_libpq(url: str, tmp_path: Path, pgvector_server: PostgresServer) -> None:
    items = f"{url}?table=items&key="
    for key, message in (
        ("sku", "column sku is NULL in 3 rows: name another by key=COLUMN"),
        ("sku&where=n<90", r"column sku is not unique \(90 rows have 30 values\): name another by key=COLUMN"),
    ):
        with pytest.raises(InputError, match=message):
            copy(items + key, tmp_path / "shop", None)
    assert look(f"{items}n").captions == ["item 60", "item 61", "item 62"]
    assert copy(f"{items}n", tmp_path / "shop", None) == 40
    assert _copied(tmp_path / "shop")["n"].to_pylist() == list(range(60, 100))
    database = url.rpartition("/")[2]
    options = f"host=127.0.0.1&port={pgvector_server.port}&password={pgvector_server.password}"
    found = look(f"postgres:///{database}?{options}&user=postgres&sslmode=prefer&connect_timeout=9&table=items&key=n")
    assert found.rows == 100
    assert look(url.replace("postgresql", "postgresql+psycopg") + "?table=items&key=n").rows == 100


def test_rows_written_meanwhile_are_not_in_the_copy(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE items SET embedding = ARRAY[n, 1]::real[]::vector")
    columns = copying._columns

    def meanwhile(page: Page) -> dict[str, pa.Array]:
        with psycopg.connect(url) as other:
            other.execute("UPDATE items SET embedding = ARRAY[n, 7]::real[]::vector")
        return columns(page)

    monkeypatch.setattr(copying, "_columns", meanwhile)
    assert copy(f"{url}?table=items&key=n", tmp_path / "shop") == 100
    assert {second for _, second in _copied(tmp_path / "shop")["embedding"].to_pylist()} == {1}
    assert look(f"{url}?table=items&key=n").rows == 100
