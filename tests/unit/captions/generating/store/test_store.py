"""The generation store: nothing twice, nothing lost, in any database of any version; pruning and exports."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import inspect, text

from components.captions.generating import store as stored
from components.captions.generating.store import Choice, GenerationStore, Pruned
from components.captions.generating.store.database import FAILURES, GENERATIONS, IMPORTS, METADATA, Database, storable
from components.captions.prompting.request import Reply, Request
from components.core.system.errors import InputError
from components.core.tables.formats import STORE
from tests.support.store_rows import SAMPLING, failures, keys, replies, request, requests


@pytest.fixture
def store(store_url: str) -> GenerationStore:
    return GenerationStore(store_url)


def test_an_answer_is_never_replaced_and_no_failure_harms_it(store: GenerationStore) -> None:
    store.add([Reply(request(), "first")])
    store.add([Reply(request(), "second"), Reply(request("a cat"), "third")])
    assert store.answers(keys([request(), request("a cat")])) == {request().key: "first", request("a cat").key: "third"}
    failed, other = request("a bus"), request("a key")
    store.add(failures([failed]))
    store.add(replies([failed]))
    assert store.failures([failed.key]) == {}
    store.add(failures([failed, other]))
    assert store.failures(keys([failed, other])) == {other.key: "HTTP 500"}
    assert store.answers([failed.key]) == {failed.key: "an answer"}


def test_answers_survive_closing_and_many_keys_are_found(store_url: str) -> None:
    store, asked = GenerationStore(store_url), requests(4500)
    store.add(replies(asked))
    store.close()
    again = GenerationStore(store_url)
    assert again.answers([*keys(asked), *keys(requests(5000))]) == dict.fromkeys(keys(asked), "an answer")
    assert again.answers([]) == {}


def test_any_answer_is_kept(store: GenerationStore) -> None:
    answers = {
        "": "",
        "ein Hund\n\t'x' \"y\" \\ {a,b} % :key": "ein Hund\n\t'x' \"y\" \\ {a,b} % :key",
        "a\0b": "a\N{REPLACEMENT CHARACTER}b",
        "half \ud83d a pair": "half \N{REPLACEMENT CHARACTER} a pair",
        "\ud83d\ude00": "\N{GRINNING FACE}",
    }
    asked, failed = requests(len(answers)), requests(2 * len(answers))[len(answers) :]
    store.add([Reply(question, answer) for question, answer in zip(asked, answers, strict=True)])
    assert store.answers(keys(asked)) == dict(zip(keys(asked), answers.values(), strict=True))
    store.add([Reply(question, None, reason) for question, reason in zip(failed, answers, strict=True)])
    assert len(store.failures(keys(failed))) == len(answers)


@given(st.text(st.characters(exclude_categories=())))
def test_what_is_stored_is_text_for_every_database(answer: str) -> None:
    kept = storable(answer)
    assert "\0" not in kept
    assert kept.encode().decode() == kept
    if "\0" not in answer and not any("\ud800" <= character <= "\udfff" for character in answer):
        assert kept == answer


def test_failures_count_attempts_with_the_last_short_reason(store: GenerationStore) -> None:
    old, new = request("old"), request("new")
    store.add(failures([old], "HTTP 500"))
    store.add([*failures([old], "HTTP 503"), *failures([new], " timed\nout "), *replies([request("fine")])])
    assert store.failures(keys([old, new, request("fine")])) == {old.key: "HTTP 503", new.key: "timed out"}
    assert [(one.rows, one.attempts) for one in store.stats().failures] == [(1, 2), (1, 1)]
    store.add(failures([request()], "x" * 100_000))
    assert len(store.failures([request().key])[request().key]) == 500
    with pytest.raises(InputError, match=r"^model 'mmm\S+' has 201 characters: the store allows 200$"):
        store.add(replies([request(model="m" * 201)]))


def test_a_batch_is_stored_whole_or_not_at_all(store: GenerationStore) -> None:
    store._database.write(lambda connection: connection.execute(text("ALTER TABLE failures RENAME TO hidden")))
    with pytest.raises(InputError, match="failures"):
        store.add([Reply(requests(2)[0], "answer"), Reply(requests(2)[1], None, "failure")])
    assert store.count() == 0


def test_statistics_count_everything(store: GenerationStore) -> None:
    assert (store.stats().rows, store.stats().oldest) == (0, None)
    store.add(replies([*requests(3), *(request(text, task="rewrite") for text in "ab"), request(model="other")]))
    store.add([*failures([request("x"), request("y")]), *failures([request("z")], "timed out")])
    found = store.stats()
    groups = [("paraphrase_1", "m", 3), ("paraphrase_1", "other", 1), ("rewrite", "m", 2)]
    assert [(group.task, group.model, group.rows) for group in found.answers] == groups
    failed = [("paraphrase_1", "HTTP 500", 2), ("paraphrase_1", "timed out", 1)]
    assert [(one.task, one.reason, one.rows) for one in found.failures] == failed
    assert (found.rows, found.imports) == (6, 0)
    assert found.bytes > 0
    assert str(found.oldest) <= str(found.newest)


def test_wrong_urls_and_files_are_one_line_without_the_password(tmp_path: Path) -> None:
    for url, message in [
        ("nonsense geheim", "synthesize.store is not a database URL: give for example sqlite:///"),
        ("mysql://me:geheim@host/x", "database 'mysql' is unknown: choose postgresql or sqlite"),
        ("sqlite://", "a store in memory keeps nothing: name a file"),
        ("postgresql://me:geheim@127.0.0.1:1/x", r"postgresql://\*\*\*@127.0.0.1:1/x cannot be opened .*refused"),
        ("postgres://127.0.0.1:1/x?user=me&password=geheim", r"x\?\S*password=\*\*\*\S* cannot be opened"),
    ]:
        with pytest.raises(InputError, match=message) as caught:
            GenerationStore(url)
        assert "geheim" not in str(caught.value)
        assert "\n" not in str(caught.value)
    (tmp_path / "store.db").write_bytes(b"no database, but long enough to be one " * 100)
    with pytest.raises(InputError, match=r"store\.db cannot be opened \(file is not a database\)"):
        GenerationStore(f"sqlite:///{tmp_path / 'store.db'}")
    with pytest.raises(InputError, match="cannot be opened"):
        GenerationStore(f"sqlite:///{tmp_path}")


def test_the_key_depends_on_messages_model_sampling_and_attempt_only() -> None:
    different = [request(), request("a cat"), request(attempt=1), request(model="n")]
    chats = [(("system", "a dog"),), (("user", "a "), ("user", "dog")), (("user", "a"), ("user", " dog"))]
    different += [Request("paraphrase_1", chat, "m", SAMPLING, 0) for chat in chats]
    assert len({one.key for one in different}) == len(different)
    assert request().key == request(task="rewrite").key


OLD = [request(f"old {number}") for number in range(3)]
OTHER = [request("other model", model="n"), request("other task", task="rewrite")]
NEW = [request("new")]


@pytest.fixture
def aged(store_url: str) -> GenerationStore:
    """Three old answers of `paraphrase_1` by `m`, one new, one each of another model and task, two failures."""
    store = GenerationStore(store_url)
    store.add(replies(OLD))
    old = text("UPDATE generations SET created = '2020-02-03T04:05:06+00:00'")
    store._database.write(lambda found: found.execute(old))
    store.add([*replies([*OTHER, *NEW]), *failures([request("bad"), request("bad", model="n")])])
    return store


@pytest.mark.parametrize(
    ("choice", "gone"),
    [
        (Choice(task="rewrite"), [Pruned("rewrite", "m", 1)]),
        (Choice(model="n"), [Pruned("paraphrase_1", "n", 1)]),
        (Choice(before=datetime(2020, 2, 3, 4, 5, 6, tzinfo=UTC)), []),
        (Choice(before=datetime(2020, 2, 3, 6, 5, 7, tzinfo=UTC).astimezone()), [Pruned("paraphrase_1", "m", 3)]),
        (Choice(task="paraphrase_1"), [Pruned("paraphrase_1", "m", 4), Pruned("paraphrase_1", "n", 1)]),
        (Choice("paraphrase_1", "m", datetime.now(UTC) - timedelta(days=1)), [Pruned("paraphrase_1", "m", 3)]),
        (Choice(task="nothing"), []),
    ],
)
def test_answers_that_match_all_filters_are_deleted(aged: GenerationStore, choice: Choice, gone: list[Pruned]) -> None:
    assert aged.prune(choice, dry_run=True) == gone
    assert aged.count() == 6
    assert aged.prune(choice) == gone
    assert aged.count() == 6 - sum(group.rows for group in gone)
    assert len(aged.stats().failures) == 1


def test_pruning_needs_a_choice_and_takes_failures_when_asked(aged: GenerationStore) -> None:
    assert aged.prune(Choice(failed=True, before=datetime.now(UTC) - timedelta(hours=1))) == []
    assert aged.prune(Choice(failed=True, model="n")) == [Pruned("paraphrase_1", "n", 1)]
    assert aged.prune(Choice(failed=True)) == [Pruned("paraphrase_1", "m", 1)]
    assert (aged.count(), aged.stats().failures) == (6, ())
    with pytest.raises(InputError, match="give --task, --model, --older-than or --failed"):
        aged.prune(Choice())
    assert aged.count() == 6


ASSET = Path(__file__).parents[5] / "components" / "captions" / "assets" / "generations.parquet"


@settings(max_examples=20)
@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=30))
def test_export_and_import_keep_every_answer(answers: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store, other = (GenerationStore(f"sqlite:///{folder / side}.db") for side in ("one", "other"))
        store.add([Reply(request(text), answer) for text, answer in answers.items()])
        assert store.export_parquet(folder / "export.parquet") == len(answers)
        assert other.import_parquet(folder / "export.parquet") == len(answers)
        assert other.import_parquet(folder / "export.parquet") == 0
        expected = {request(text).key: storable(answer) for text, answer in answers.items()}
        assert other.answers(list(expected)) == expected
        store.close()
        other.close()


def test_the_repositorys_export_stays(store: GenerationStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_WRITTEN", 700)
    rows = pq.read_metadata(ASSET).num_rows
    assert store.import_parquet(ASSET) == rows > 10_000
    assert store.export_parquet(tmp_path / "export.parquet") == rows
    assert pq.read_table(tmp_path / "export.parquet").equals(pq.read_table(ASSET))
    assert store.export_parquet(tmp_path / "new" / "export.parquet") == rows


def test_import_merges_and_fixes(store: GenerationStore, tmp_path: Path) -> None:
    other, asked = GenerationStore(f"sqlite:///{tmp_path / 'other.db'}"), requests(30)
    other.add(replies(asked, "theirs"))
    other.export_parquet(tmp_path / "export.parquet")
    store.add([*replies(asked[:10], "ours"), *failures(asked[10:20])])
    assert store.import_parquet(tmp_path / "export.parquet") == 20
    assert list(store.answers(keys(asked)).values()).count("ours") == 10
    assert store.stats().failures == ()


def test_a_replay_is_imported_once_and_pruned_answers_stay_away(store: GenerationStore, tmp_path: Path) -> None:
    path = tmp_path / "export.parquet"
    store.add(replies([*requests(3), request("other", task="rewrite")]))
    store.export_parquet(path)
    store.prune(Choice(task="paraphrase_1"))
    assert store.import_once(path) == 3, "this store has never imported it"
    store.prune(Choice(task="paraphrase_1"))
    path = path.rename(tmp_path / "renamed.parquet")
    assert (store.import_once(path), store.count()) == (0, 1)
    assert store.import_parquet(path) == 3
    assert store.import_once(path) == store.import_parquet(path) == 0
    assert (store.count(), store.stats().imports) == (4, 1)


def test_half_an_import_is_none(store: GenerationStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_READ", 10)
    rows = pq.read_table(ASSET).slice(0, 25)
    answers = rows["answer"].to_pylist()
    answers[-1] = None
    pq.write_table(rows.set_column(6, "answer", pa.array(answers)), tmp_path / "export.parquet")
    for _ in range(2):
        with pytest.raises(InputError, match=r"export\.parquet is not an export .*empty cells"):
            store.import_parquet(tmp_path / "export.parquet")
        assert store.count() == 20
    pq.write_table(rows, tmp_path / "export.parquet")
    assert store.import_parquet(tmp_path / "export.parquet") == 5


def test_a_file_that_is_not_an_export_is_named(tmp_path: Path) -> None:
    store = GenerationStore(f"sqlite:///{tmp_path / 'store.db'}")
    (tmp_path / "cut.parquet").write_bytes(ASSET.read_bytes()[:500_000])
    pq.write_table(pa.table({"key": ["a"], "task": ["b"]}), tmp_path / "other.parquet")
    rows = pq.read_table(ASSET).slice(0, 9)
    pq.write_table(rows.set_column(5, "attempt", pa.array(["x"] * 9)), tmp_path / "type.parquet")
    for name, reason in (("cut", ""), ("other", "no column 'prompt_sha256'"), ("type", "")):
        with pytest.raises(InputError, match=rf"{name}\.parquet is not an export .*{reason}"):
            store.import_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(InputError, match=r"gone\.parquet is missing"):
        store.import_parquet(tmp_path / "gone.parquet")
    assert store.count() == 0


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
