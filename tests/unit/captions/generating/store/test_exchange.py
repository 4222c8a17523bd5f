"""Exports hold every answer, and merge into another store without harm."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.captions.generating import store as stored
from components.captions.generating.store import Choice, GenerationStore
from components.captions.generating.store.database import storable
from components.captions.prompting.request import Reply
from components.core.system.errors import InputError
from tests.support.store_rows import failures, keys, replies, request, requests

ASSET = Path(__file__).parents[5] / "components" / "captions" / "assets" / "generations.parquet"


@pytest.fixture
def store(store_url: str) -> GenerationStore:
    return GenerationStore(store_url)


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


def test_the_repositorys_export_comes_out_as_it_went_in(
    store: GenerationStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_replay_is_imported_once_and_pruned_answers_come_back_only_on_purpose(
    store: GenerationStore, tmp_path: Path
) -> None:
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


def test_a_file_that_broke_half_way_is_not_taken_for_imported(
    store: GenerationStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
