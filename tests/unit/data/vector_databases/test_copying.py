"""Rows of databases become a folder that source `embeddings` reads, all of one generation, or nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from qdrant_client import QdrantClient, models
from typer.testing import CliRunner

from components.cli import app
from components.core.settings import Counts, Prepare
from components.core.system.errors import InputError
from components.data.sources import find_source
from components.data.vector_databases import copying, find_store
from components.data.vector_databases.copying import copy, look
from components.data.vector_databases.store import OpenStore, Page, StoreUrl

REPO = Path(__file__).parents[4]
ROWS, DIM = 60, 4
Write = Callable[..., str]


@pytest.fixture(autouse=True)
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three pages without three thousand rows."""
    monkeypatch.setattr(copying, "_ROWS", 25)


def _vectors(generation: str) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(generation)).normal(size=(ROWS, DIM)).astype(np.float32)


def _payloads(generation: str) -> list[dict[str, Any]]:
    """The first 40 rows are of one collection, the others of another one."""
    return [
        {
            "title": f"{generation} {row}", "brand": "Acme" if row % 2 else None, "path": f"{row}.jpg",
            "collection_id": "a" if row < 40 else "b",
        }
        for row in range(ROWS)
    ]  # fmt: skip


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


MORE = models.PointStruct(id=ROWS, vector={"image": [1.0] * DIM}, payload={})
databases = pytest.mark.parametrize("write", [_qdrant, _lance])


def _copied(folder: Path) -> pa.Table:
    return pa.concat_tables((pq.read_table(file) for file in sorted(folder.iterdir())), promote_options="permissive")


class _Watched:
    """An open database of which each page but the first comes after a call of `before`."""

    def __init__(self, opened: OpenStore, before: Callable[[Any, Any], object]) -> None:
        self._opened, self._before = opened, before
        self.count = opened.count

    def page(self, after: Any, rows: int) -> Page:
        if after is not None:
            self._before(self._opened, after)
        return self._opened.page(after, rows)


def _fails(*_: object) -> None:
    raise OSError("connection reset")


def _watch(url: str, before: Callable[[Any, Any], object], patch: pytest.MonkeyPatch) -> None:
    """Let copies of this kind of database behave as `_Watched`."""
    store = find_store(url.partition(":")[0].partition("+")[0])

    @contextmanager
    def opened(place: StoreUrl) -> Iterator[OpenStore]:
        with store.opened(place) as one:
            yield _Watched(one, before)

    patch.setattr(copying, "find_store", lambda _: replace(store, opened=opened))


@databases
def test_rows_become_a_folder_of_embeddings(write: Write, tmp_path: Path) -> None:
    url, folder = write(tmp_path / "database", "mug"), tmp_path / "shop"
    first = look(url, "title, brand")
    assert (first.rows, first.dim, first.captions[:2]) == (ROWS, DIM, ["mug 0", "mug 1, Acme"])
    assert copy(url, folder, "title, brand") == ROWS
    rows = _copied(folder)
    np.testing.assert_allclose(np.stack(rows["embedding"].to_numpy()), _vectors("mug"), atol=1e-6)
    assert rows.select(["title", "brand"]).to_pylist()[1] == {"title": "mug 1", "brand": "Acme"}
    assert rows["image_path"].to_pylist()[7] == "7.jpg"
    source = find_source("embeddings")
    assert source.describe is not None
    described = source.describe(
        Prepare(source="embeddings", counts=Counts(train=1, val=1, test=1), folder=folder, text="title, brand")
    )
    assert described.images == {"train": ROWS}


@databases
def test_a_stopped_copy_writes_nothing(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, folder = write(tmp_path / "database", "old"), tmp_path / "shop"
    with monkeypatch.context() as patch:
        _watch(url, _fails, patch)
        with pytest.raises(InputError, match=r"connection reset; run this again$"):
            copy(url, folder, "title")
    assert [path.name for path in tmp_path.iterdir()] == ["database"]
    write(tmp_path / "database", "renewed")
    assert copy(url, folder, "title") == ROWS
    assert {text.split()[0] for text in _copied(folder)["title"].to_pylist()} == {"renewed"}


@pytest.mark.parametrize(
    "change",
    [
        lambda opened, _: opened._client.set_payload("rows", {"title": "renewed"}, points=[0]),
        lambda opened, _: opened._client.delete("rows", [ROWS - 1]),
        lambda opened, after: after == "end" and opened._client.upsert("rows", [MORE]),
    ],
    ids=["another text", "a point less", "a point more after the last page"],
)
def test_a_database_that_changes_meanwhile_is_refused(
    change: Callable[[Any, Any], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = _qdrant(tmp_path / "database", "old")
    _watch(url, change, monkeypatch)
    with pytest.raises(InputError, match=r"it changed while it was read \((59|60) of 60 rows\): run this again"):
        copy(url, tmp_path / "shop", "title")
    assert not (tmp_path / "shop").exists()


@databases
@pytest.mark.parametrize("lacking", [30, 52])
def test_rows_without_a_vector(write: Write, lacking: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = write(tmp_path / "database", "new", lacking=lacking)
    first = look(url, "title")
    assert (first.rows, first.dim, first.captions[0]) == (ROWS, DIM, f"new {lacking}")
    assert copy(url, tmp_path / "shop", "title") == ROWS - lacking
    assert f"{lacking:,} rows have no vector and are left out" in capsys.readouterr().out
    rows = _copied(tmp_path / "shop")
    np.testing.assert_allclose(np.stack(rows["embedding"].to_numpy()), _vectors("new")[lacking:], atol=1e-6)


@databases
def test_a_database_without_any_vector_is_refused(write: Write, tmp_path: Path) -> None:
    url = write(tmp_path / "database", "new", lacking=ROWS)
    for read in (lambda: look(url), lambda: copy(url, tmp_path / "shop", None)):
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
    assert copy(url, tmp_path / "shop", "title") == first.rows
    assert set(_copied(tmp_path / "shop")["collection_id"].to_pylist()) == {"b"}


def test_what_cannot_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qdrant, lance = _qdrant(tmp_path / "qdrant", "new"), _lance(tmp_path / "lance", "new")
    zero = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(DIM, np.float32)), DIM)
    lancedb.connect(tmp_path / "lance").create_table("zeros", pa.table({"title": ["mug"], "vector": zero}))
    for url, text, message in (
        ("milvus://host/images", None, "--index 'milvus' is unknown: choose one of lance, postgresql, qdrant"),
        (f"{lance}?vectors=x", None, "--index: option 'vectors' is unknown: choose of vector, key, where"),
        (f"{lance}s", None, "no table 'rowss': choose of rows, zeros"),
        (f"{lance}?vector=clip", None, r"its columns of vectors are vector: choose with vector=COLUMN"),
        (f"{lance}?key=sku", "title", "no column 'sku': its columns are title, brand, path, collection_id"),
        (lance, "name", "no field 'name' for the caption: choose with --text of brand, collection_id, path, title"),
        (f"{lance}?where=colour = 'red'", "title", "where=colour = 'red': .*colour"),
        (f"{lance}?where=title =", "title", "where=title =: "),
        (
            lance.replace("rows", "zeros"),
            "title",
            "none of 1 rows has a finite vector: choose another one with vector=",
        ),
        (qdrant.replace("rows", "rowss"), None, "no collection 'rowss': choose of rows"),
        (qdrant.replace("=image", "=clip"), None, "its vectors are image, text: choose with vector=NAME"),
        (f"{qdrant}&where=collection_id", "title", "where=collection_id: write it as FIELD=VALUE, or as a filter"),
        (f'{qdrant}&where={{"mus": []}}', "title", "where=.*: Extra inputs are not permitted"),
        (f"{qdrant}&where=collection_id=c", "title", "it has no rows"),
        ("qdrant://127.0.0.1:9/images", None, "refused.*; start the database or correct the URL$"),
    ):
        with pytest.raises(InputError, match=message) as error:
            copy(url, tmp_path / "shop", text)
        assert "\n" not in str(error.value)
        assert not (tmp_path / "shop").exists()
    monkeypatch.setattr(copying, "find_spec", lambda _: None)
    with pytest.raises(InputError, match="needs the package qdrant-client: pip install qdrant-client"):
        look(qdrant)
    assert find_store("lance").package == "lancedb"


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
    url = f"qdrant+file://{tmp_path}/database/rows"
    with pytest.raises(InputError, match="its vectors are without a name: choose with vector=NAME"):
        look(f"{url}?vector=clip")
    copy(url, tmp_path / "shop", None)
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


def test_init_reads_fields_of_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("params.yaml", "dvc.yaml", "components", "infra/profiles/toy.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).symlink_to(REPO / name)
    monkeypatch.chdir(tmp_path)
    vectors = np.random.default_rng(0).normal(size=90 * DIM).astype(np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors), DIM)
    rows = [{"title": f"mug {row}", "brand": "Acme", "sku": row // 3} for row in range(90)]
    lancedb.connect(tmp_path / "database").create_table("images", pa.Table.from_pylist(rows).append_column("v", lists))
    command = ["init", "data/mugs", "--index", f"lance://{tmp_path}/database/images", "--text", "{title}[ by {brand}]"]
    seen = CliRunner().invoke(app, [*command, "--dry-run"])
    assert "90 vectors of 4 numbers; fields of the first: title, brand, sku" in seen.output
    assert "caption: mug 1 by Acme" in seen.output
    assert not Path("data").exists()
    done = CliRunner().invoke(app, [*command, "--name", "mugs", "--item", "sku"])
    assert done.exit_code == 0, done.output
    assert "such as: mug 0 by Acme" in done.output
    assert "items: 30 products, 30 with several pictures, at most 3" in done.output
