"""Vectors and texts of databases become a folder that source `embeddings` reads, or nothing is written."""

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
from typer.testing import CliRunner

from components.cli import app
from components.core.settings import Counts, Prepare
from components.core.system.errors import InputError
from components.data.sources import find_source
from components.data.vector_databases import copying, find_store
from components.data.vector_databases.copying import copy, look
from components.data.vector_databases.store import OpenStore, Page, StoreUrl, VectorStore

ROWS, DIM = 2500, 4
VECTORS = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)
PAYLOADS: list[dict[str, Any]] = [
    {"title": f"mug {row}", "brand": "Acme" if row % 2 else None, "path": f"{row}.jpg"} for row in range(ROWS)
]


def _qdrant(folder: Path, vectors: np.ndarray[Any, Any] = VECTORS) -> str:
    client = QdrantClient(path=str(folder))
    client.create_collection("images", models.VectorParams(size=vectors.shape[1], distance=models.Distance.COSINE))
    if len(vectors):
        client.upload_collection("images", vectors, PAYLOADS[: len(vectors)], range(len(vectors)))
    client.close()
    return f"qdrant+file://{folder}/images"


def _lance(folder: Path, vectors: np.ndarray[Any, Any] = VECTORS) -> str:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    rows = pa.Table.from_pylist(PAYLOADS[: len(vectors)]).append_column("vector", lists)
    lancedb.connect(folder).create_table("images", rows)
    return f"lance://{folder}/images"


@pytest.mark.parametrize("write", [_qdrant, _lance])
def test_rows_become_a_folder_of_embeddings(write: Callable[[Path], str], tmp_path: Path) -> None:
    url, folder = write(tmp_path / "database"), tmp_path / "shop"
    first = look(url, "title, brand")
    assert (first.rows, first.dim, first.captions[:2]) == (ROWS, DIM, ["mug 0", "mug 1, Acme"])
    assert copy(url, folder, "title, brand", tmp_path / "state") == ROWS
    rows = pa.concat_tables(pq.read_table(file) for file in sorted(folder.iterdir()))
    np.testing.assert_allclose(np.stack(rows["embedding"].to_numpy()), VECTORS, atol=1e-6)
    assert rows.select(["title", "brand"]).to_pylist()[1] == {"title": "mug 1", "brand": "Acme"}
    assert rows["image_path"].to_pylist()[7] == "7.jpg"
    source = find_source("embeddings")
    assert source.describe is not None
    described = source.describe(
        Prepare(source="embeddings", counts=Counts(train=1, val=1, test=1), folder=folder, text="title, brand")
    )
    assert described.images == {"train": ROWS}
    assert not list((tmp_path / "state").iterdir())


class _Breaking:
    """A database whose connection breaks after some pages, or which changes meanwhile."""

    def __init__(self, pages: int, changes: bool = False, vectors: np.ndarray[Any, Any] = VECTORS) -> None:
        self.left, self.asked, self.states = pages, list[Any](), iter(["a", "b" if changes else "a"])
        self.vectors = vectors

    def state(self) -> str:
        return next(self.states)

    def count(self) -> int:
        return ROWS

    def page(self, after: Any, rows: int) -> Page:
        if self.left == 0:
            raise OSError("connection reset")
        self.left -= 1
        self.asked.append(after)
        start = after or 0
        keys = [str(key) for key in range(start, min(ROWS, start + rows))]
        stop = start + len(keys)
        return Page.of(keys, PAYLOADS[start:stop], list(self.vectors[start:stop]), stop)


def _use(store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def opened(_: StoreUrl) -> Iterator[OpenStore]:
        yield store

    found = VectorStore("psycopg", "", (), opened, lambda: (OSError,))
    monkeypatch.setattr(copying, "find_store", lambda _: found)


def test_a_copy_that_broke_goes_on_and_writes_nothing_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, state = tmp_path / "shop", tmp_path / "state"
    _use(_Breaking(2), monkeypatch)
    with pytest.raises(
        InputError, match=r"^postgresql://\*\*\*@host/shop: connection reset; .* the copy resumes"
    ) as error:
        copy("postgresql://reader:secret@host/shop", folder, "title", state)
    assert "secret" not in str(error.value)
    assert not folder.exists()
    _use(again := _Breaking(99), monkeypatch)
    assert copy("postgresql://reader:secret@host/shop", folder, "title", state) == ROWS
    # Pages that are copied already are compared before and after.
    assert again.asked == [None, 1000, 1000, 2000, 2500, None, 1000, 2000, 2000]
    assert len(pa.concat_tables(pq.read_table(file) for file in folder.iterdir())) == ROWS


def test_a_database_that_changes_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _use(_Breaking(99, changes=True), monkeypatch)
    with pytest.raises(InputError, match=r"it changed while it was read \(2,500 of 2,500 rows\)"):
        copy("postgresql://host/shop", tmp_path / "shop", "title", tmp_path / "state")
    assert not (tmp_path / "shop").exists()


def test_what_cannot_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qdrant, lance = _qdrant(tmp_path / "qdrant"), _lance(tmp_path / "lance")
    bad = _lance(tmp_path / "zeros", np.zeros((20, DIM), np.float32))
    for url, text, message in (
        ("milvus://host/images", None, "--index 'milvus' is unknown: choose one of lance, postgresql, qdrant"),
        (f"{lance}?vectors=x", None, "--index: option 'vectors' is unknown: choose of vector, key, where"),
        (f"{lance}s", None, "no table 'imagess': choose of images"),
        (f"{lance}?vector=clip", None, r"its columns of vectors are vector: choose with vector=COLUMN"),
        (f"{qdrant}s", None, "no collection 'imagess': choose of images"),
        (f"{qdrant}?vector=clip", None, r"its vectors are without a name: choose with vector=NAME"),
        (
            "qdrant://127.0.0.1:9/images",
            None,
            "refused.*; start the database or correct the URL$",
        ),
        (lance, "name", "no field 'name' for the caption: choose with --text of brand, path, title"),
        (_qdrant(tmp_path / "empty", VECTORS[:0]), None, "it has no rows"),
        (bad, "title", r"none of 20 rows has a finite vector: choose another one with vector="),
    ):
        with pytest.raises(InputError, match=message) as error:
            copy(url, tmp_path / "shop", text, tmp_path / "state")
        assert "\n" not in str(error.value)
        assert not (tmp_path / "shop").exists()
    monkeypatch.setattr(copying, "find_spec", lambda _: None)
    with pytest.raises(InputError, match="needs the package qdrant-client: pip install qdrant-client"):
        look(qdrant)
    assert find_store("lance").package == "lancedb"


def test_init_copies_into_the_folder_and_writes_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = Path(__file__).parents[4]
    for name in ("params.yaml", "dvc.yaml", "infra"):
        (tmp_path / name).symlink_to(repo / name)
    monkeypatch.chdir(tmp_path)
    url = _lance(tmp_path / "database")
    seen = CliRunner().invoke(app, ["init", "data/mugs", "--index", url, "--text", "title,brand", "--dry-run"])
    assert "2,500 vectors of 4 numbers; fields of the first: title, brand, path" in seen.output
    assert "caption: mug 1, Acme" in seen.output
    assert not Path("data").exists()


def test_fields_of_a_database_are_read_as_those_of_any_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = Path(__file__).parents[4]
    for name in ("params.yaml", "dvc.yaml", "components", "infra/profiles/toy.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).symlink_to(repo / name)
    monkeypatch.chdir(tmp_path)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS[:90].ravel()), DIM)
    rows = [{"title": f"mug {row}", "brand": "Acme", "sku": row // 3} for row in range(90)]
    lancedb.connect(tmp_path / "database").create_table("images", pa.Table.from_pylist(rows).append_column("v", lists))
    arguments = ["--index", f"lance://{tmp_path}/database/images", "--text", "{title}[ by {brand}]", "--item", "sku"]
    done = CliRunner().invoke(app, ["init", "data/mugs", "--name", "mugs", *arguments])
    assert done.exit_code == 0, done.output
    assert "such as: mug 0 by Acme" in done.output
    assert "items: 30 products, 30 with several pictures, at most 3" in done.output
