"""Which rows of a database are copied: those of `where`, with a vector, all texts and fields, and of one generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from qdrant_client import QdrantClient, models

from components.core.system.errors import InputError
from components.data.vector_databases import copying, find_store
from components.data.vector_databases.copying import copy, look
from components.data.vector_databases.store import OpenStore, Page, StoreUrl

ROWS, DIM = 60, 4
Write = Callable[[Path, str], str]


@pytest.fixture(autouse=True)
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three pages without three thousand rows."""
    monkeypatch.setattr(copying, "_ROWS", 25)


def _vectors(generation: str) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(generation)).normal(size=(ROWS, DIM)).astype(np.float32)


def _payloads(generation: str) -> list[dict[str, Any]]:
    """The first 1,600 rows are of one collection, the others of another one."""
    return [{"title": f"{generation} {row}", "collection_id": "a" if row < 40 else "b"} for row in range(ROWS)]


def _qdrant(folder: Path, generation: str, lacking: int = 0) -> str:
    """The first points may lack the vector `image`."""
    client = QdrantClient(path=str(folder))
    kind = models.VectorParams(size=DIM, distance=models.Distance.DOT)
    if not client.collection_exists("rows"):
        client.create_collection("rows", {"image": kind, "text": kind})
    rows = zip(_vectors(generation).tolist(), _payloads(generation), strict=True)
    points = [
        models.PointStruct(id=row, vector={"text" if row < lacking else "image": vector}, payload=payload)
        for row, (vector, payload) in enumerate(rows)
    ]
    client.upsert("rows", points)
    client.close()
    return f"qdrant+file://{folder}/rows?vector=image"


def _lance(folder: Path, generation: str, lacking: int = 0) -> str:
    vectors = [None if row < lacking else vector for row, vector in enumerate(_vectors(generation).tolist())]
    table = pa.Table.from_pylist(_payloads(generation))
    table = table.append_column("vector", pa.array(vectors, pa.list_(pa.float32(), DIM)))
    lancedb.connect(folder).create_table("rows", table, mode="overwrite", on_bad_vectors="null")
    return f"lance://{folder}/rows"


def _copied(folder: Path) -> pa.Table:
    return pa.concat_tables((pq.read_table(file) for file in sorted(folder.iterdir())), promote_options="permissive")


class _Stops:
    """An open database whose connection breaks behind so many pages."""

    def __init__(self, opened: OpenStore, pages: int) -> None:
        self._opened, self._left = opened, pages
        self.state, self.count = opened.state, opened.count

    def page(self, after: Any, rows: int) -> Page:
        self._left -= 1
        if self._left < 0:
            raise OSError("connection reset")
        return self._opened.page(after, rows)


@contextmanager
def _stopping(scheme: str, pages: int) -> Iterator[None]:
    """Within the block, a copy from this kind of database breaks behind so many pages."""
    store = find_store(scheme)

    @contextmanager
    def opened(url: StoreUrl) -> Iterator[OpenStore]:
        with store.opened(url) as one:
            yield _Stops(one, pages)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "find_store", lambda _: copying_store)
        copying_store = store.__class__(**{**store.__dict__, "opened": opened})
        yield


@pytest.mark.parametrize("write", [_qdrant, _lance])
def test_a_stopped_copy_never_mixes_two_generations(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, folder, state = write(tmp_path / "database", "old"), tmp_path / "shop", tmp_path / "state"
    with _stopping(url.partition(":")[0].partition("+")[0], 2), pytest.raises(InputError, match="the copy resumes"):
        copy(url, folder, "title", state)
    write(tmp_path / "database", "renewed")
    assert copy(url, folder, "title", state) == ROWS
    assert "the database changed since the last run: it is read from the start" in capsys.readouterr().out
    rows = _copied(folder)
    assert {text.split()[0] for text in rows["title"].to_pylist()} == {"renewed"}
    np.testing.assert_allclose(np.stack(rows["embedding"].to_numpy()), _vectors("renewed"), atol=1e-6)


@pytest.mark.parametrize("write", [_qdrant, _lance])
def test_a_stopped_copy_of_an_unchanged_database_resumes(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, folder, state = write(tmp_path / "database", "old"), tmp_path / "shop", tmp_path / "state"
    with _stopping(url.partition(":")[0].partition("+")[0], 2), pytest.raises(InputError):
        copy(url, folder, "title", state)
    kept = {file.name: file.stat().st_ino for file in state.rglob("*.parquet")}
    assert len(kept) == 2
    assert copy(url, folder, "title", state) == ROWS
    assert {name: (folder / name).stat().st_ino for name in kept} == kept
    assert "changed" not in capsys.readouterr().out
    assert _copied(folder)["title"].to_pylist() == [payload["title"] for payload in _payloads("old")]


def test_a_database_that_is_written_during_the_copy_is_refused(tmp_path: Path) -> None:
    url = _qdrant(tmp_path / "database", "old")
    with _stopping("qdrant", 2), pytest.raises(InputError):
        copy(url, tmp_path / "shop", "title", tmp_path / "state")
    (part,) = sorted((tmp_path / "state").rglob("*_000001.parquet"))
    # The page is that of another generation, whatever its mark says.
    table = pq.read_table(part)
    mark = table.schema.metadata[b"mark"].replace(b'"content": "', b'"content": "0')
    pq.write_table(table.replace_schema_metadata({b"mark": mark}), part)
    assert copy(url, tmp_path / "shop", "title", tmp_path / "state") == ROWS
    assert len(_copied(tmp_path / "shop")) == ROWS


@pytest.mark.parametrize("write", [_qdrant, _lance])
@pytest.mark.parametrize("lacking", [30, 52])
def test_rows_without_a_vector_are_left_out(
    write: Callable[..., str], lacking: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = write(tmp_path / "database", "new", lacking=lacking)
    first = look(url, "title")
    assert (first.rows, first.dim, first.captions[0]) == (ROWS, DIM, f"new {lacking}")
    assert copy(url, tmp_path / "shop", "title", tmp_path / "state") == ROWS - lacking
    assert f"{lacking:,} rows have no vector and are left out" in capsys.readouterr().out
    rows = _copied(tmp_path / "shop")
    np.testing.assert_allclose(np.stack(rows["embedding"].to_numpy()), _vectors("new")[lacking:], atol=1e-6)


@pytest.mark.parametrize("write", [_qdrant, _lance])
def test_a_database_without_any_vector_is_refused(write: Callable[..., str], tmp_path: Path) -> None:
    url = write(tmp_path / "database", "new", lacking=ROWS)
    for read in (lambda: look(url), lambda: copy(url, tmp_path / "shop", None, tmp_path / "state")):
        with pytest.raises(InputError, match="none of 60 rows has a finite vector: choose another one with vector="):
            read()
    assert not (tmp_path / "shop").exists()


@pytest.mark.parametrize(
    ("write", "where"),
    [
        (_qdrant, "collection_id=b"),
        (_qdrant, "collection_id='b'"),
        (_qdrant, '{"must": [{"key": "collection_id", "match": {"value": "b"}}]}'),
        (_lance, "collection_id='b'"),
        (_lance, "title >= 'new 40' AND collection_id = 'b'"),
    ],
)
def test_where_selects_rows(write: Write, where: str, tmp_path: Path) -> None:
    url = write(tmp_path / "database", "new")
    # The first page alone does not show that there are two.
    (note,) = look(url, "title").notes
    assert note.startswith("column collection_id has 2 values, such as 'a' and 'b'")
    assert note.endswith("where=collection_id='a'")
    url += f"{'&' if '?' in url else '?'}where={where}"
    first = look(url, "title")
    assert first.rows < ROWS
    assert list(first.notes) == []
    assert copy(url, tmp_path / "shop", "title", tmp_path / "state") == first.rows
    assert set(_copied(tmp_path / "shop")["collection_id"].to_pylist()) == {"b"}


def test_a_wrong_condition_is_one_line(tmp_path: Path) -> None:
    qdrant, lance = _qdrant(tmp_path / "qdrant", "new"), _lance(tmp_path / "lance", "new")
    for url, message in (
        (f"{qdrant}&where=collection_id", "where=collection_id: write it as FIELD=VALUE, or as a filter of Qdrant"),
        (f'{qdrant}&where={{"mus": []}}', "where=.*: Extra inputs are not permitted"),
        (f"{qdrant}&where=collection_id=c", "it has no rows"),
        (f"{lance}?where=colour = 'red'", "where=colour = 'red': .*colour"),
        (f"{lance}?where=title =", "where=title =: "),
        (f"{lance}?key=sku", "no column 'sku': its columns are title, collection_id"),
    ):
        with pytest.raises(InputError, match=message) as error:
            look(url, "title")
        assert "\n" not in str(error.value)


def test_every_field_is_a_column_of_the_copy(tmp_path: Path) -> None:
    client = QdrantClient(path=str(tmp_path / "database"))
    client.create_collection("rows", models.VectorParams(size=2, distance=models.Distance.DOT))
    payloads: list[dict[str, Any]] = [
        {"title": "mug", "sku": 0, "tags": ["red", "new"], "meta": {"brand": "Acme"}, "price": 7, "file": "a.jpg"},
        {"title": "cup", "sku": 1, "tags": [], "meta": {}, "price": "on request", "embedding": [0.5], "key": "own"},
    ]
    rest = [{"title": "rest", "late": "field"}] * 40
    client.upload_collection("rows", np.ones((42, 2)), payloads + rest, range(42))
    client.close()
    copy(f"qdrant+file://{tmp_path}/database/rows", tmp_path / "shop", None, tmp_path / "state")
    first, second, *_ = _copied(tmp_path / "shop").to_pylist()
    # A field that only some pages have is a column of all files.
    assert len({tuple(sorted(pq.read_schema(file).names)) for file in (tmp_path / "shop").iterdir()}) == 1
    assert first == {
        "title": "mug", "sku": 0, "tags": ["red", "new"], "meta": {"brand": "Acme"}, "price": "7", "file": "a.jpg",
        "key": None, "image_path": "a.jpg", "embedding": [1.0, 1.0], "late": None,
    }  # fmt: skip
    assert (second["sku"], second["tags"], second["price"], second["key"]) == (1, [], "on request", "own")


def test_a_url_that_cannot_be_read_is_said_without_its_password(tmp_path: Path) -> None:
    for url, message in (
        ("postgresql://me:pa/ssWORD@127.0.0.1:1/x?table=a", "host or port cannot be read: write it as postgresql://"),
        ("postgresql://me@127.0.0.1:pgport/x?table=a", "the URL's host or port cannot be read"),
        ("qdrant://me:pa/ssWORD@127.0.0.1/images", "the URL's host or port cannot be read: write it as qdrant://"),
        ("qdrant://[::1/images", "the URL's host or port cannot be read"),
        ("qdrant:///images", "the URL has no host: write it as qdrant://"),
        ("me:ssWORD@127.0.0.1/images", "the URL has no scheme: begin it with qdrant://"),
        ("postgresql://host/x?table=a&foo=1", "option 'foo' is unknown: choose of table, vector, key, where"),
        ("postgres://127.0.0.1:9/x?table=a&sslmode=require&password=ssWORD", "refused.*correct the URL"),
        ("postgresql+psycopg://127.0.0.1/x?table=a&host=/nowhere&port=9", "nowhere.*correct the URL"),
        ("postgresql://127.0.0.1/x?table=a&sslmode=strict", 'invalid sslmode value: "strict"; .*correct the URL'),
    ):
        with pytest.raises(InputError, match=message) as error:
            look(url)
        assert "ssWORD" not in str(error.value)
        assert "resumes" not in str(error.value)
