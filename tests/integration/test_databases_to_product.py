"""From an index in a database to a better text encoder in front of it, without one vector written."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import psycopg
import pyarrow as pa
import pytest
import yaml
from qdrant_client import QdrantClient, models

from components.cli.edited_params import overlaid
from components.core.settings import load_settings
from components.data import prepare
from components.encoders.adapter.encoder import Encoder, Vectors, unit_rows
from components.encoders.embed import run as embed
from components.registry.encoder_lookup import find_encoder
from components.registry.formats import find_format
from components.serving.index.image_index import ImageIndex
from components.training.train import run as train
from tests.integration.postgres import PostgresServer
from tests.support.checkout import REPO, start_project
from tests.support.coloured_squares import ENTRY, shown_squares
from tests.support.typed import cliptune

QUERIES = ["red square", "something blue", "a pink picture", "black"]


@dataclass(frozen=True)
class Product:
    """A database as a shop has it, and its own way of asking.

    Attributes:
        url: for `--index`.
        asked: text vectors `[queries, dim]` to the keys of ten pictures each.
        content: changes whenever anything is written.
        serves: the export that the product embeds queries with.
    """

    url: str
    asked: Callable[[Vectors], list[list[int]]]
    content: Callable[[], Any]
    serves: str


def _postgresql(folder: Path, vectors: Vectors, rows: Sequence[dict[str, str]], url: str) -> Product:
    def ask(queries: Vectors) -> list[list[int]]:
        query = "SELECT id FROM images ORDER BY embedding <=> %s::vector LIMIT 10"
        with psycopg.connect(url) as connection:
            return [[row[0] for row in connection.execute(query, [str(one.tolist())])] for one in queries]

    def content() -> Any:
        with psycopg.connect(url) as connection:
            return connection.execute(
                "SELECT count(*), md5(string_agg(images::text, '' ORDER BY id)) FROM images"
            ).fetchone()

    with psycopg.connect(url) as connection:
        connection.execute("CREATE EXTENSION vector")
        kind = f"vector({vectors.shape[1]})"
        connection.execute(f"CREATE TABLE images (id bigint PRIMARY KEY, title text, path text, embedding {kind})")
        with connection.cursor() as cursor, cursor.copy("COPY images FROM STDIN") as copied:
            for number, (row, vector) in enumerate(zip(rows, vectors, strict=True)):
                copied.write_row((number, row["title"], row["path"], str(vector.tolist())))
    return Product(f"{url}?table=images", ask, content, "onnx")


def _qdrant(folder: Path, vectors: Vectors, rows: Sequence[dict[str, str]], _url: str) -> Product:
    def ask(queries: Vectors) -> list[list[int]]:
        client = QdrantClient(path=str(folder))
        found = [client.query_points("images", query=one.tolist(), limit=10).points for one in queries]
        client.close()
        return [[int(point.id) for point in points] for points in found]

    def content() -> Any:
        client = QdrantClient(path=str(folder))
        points, _ = client.scroll("images", limit=len(rows), with_vectors=True)
        client.close()
        return [(point.id, point.payload, point.vector) for point in points]

    client = QdrantClient(path=str(folder))
    client.create_collection("images", models.VectorParams(size=vectors.shape[1], distance=models.Distance.COSINE))
    client.upload_collection("images", vectors, [dict(row) for row in rows], range(len(rows)))
    client.close()
    return Product(f"qdrant+file://{folder}/images", ask, content, "onnx")


def _lance(folder: Path, vectors: Vectors, rows: Sequence[dict[str, str]], _url: str) -> Product:
    def ask(queries: Vectors) -> list[list[int]]:
        searches = (table.search(one).distance_type("cosine").select(["id"]).limit(10) for one in queries)
        return [[row["id"] for row in search.to_list()] for search in searches]

    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    content = pa.Table.from_pylist([{"id": number} | row for number, row in enumerate(rows)])
    table = lancedb.connect(folder).create_table("images", content.append_column("vector", lists))
    return Product(f"lance://{folder}/images", ask, lambda: table.version, "sentence_transformers")


@pytest.fixture(params=[_postgresql, _qdrant, _lance])
def product(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    track_in: Callable[[Path], None],
    tiny_encoder: Encoder,
    pgvector_server: PostgresServer,
) -> Product:
    """2,000 drawn pictures in a database, and a new project, which is the current folder."""
    track_in(tmp_path)
    start_project(tmp_path)
    shown, pictures = shown_squares(250), tmp_path / "pictures"
    pictures.mkdir()
    for name, (raw, _) in shown.items():
        (pictures / name).write_bytes(raw)
    rows = [{"title": captions[0], "path": str(pictures / name)} for name, (_, captions) in shown.items()]
    vectors, _ = unit_rows(tiny_encoder.image_features([raw for raw, _ in shown.values()]))
    url = pgvector_server.new_database() if request.param is _postgresql else ""
    made: Product = request.param(tmp_path / "database", vectors, rows, url)
    return made


def test_an_index_in_a_database_gets_a_better_encoder_and_keeps_its_vectors(
    product: Product, tiny_encoder: Encoder, capsys: pytest.CaptureFixture[str]
) -> None:
    before = product.content()
    shown = cliptune("init", "shop", "--index", product.url)
    assert "copied 2,000 vectors into shop" in shown
    assert "source 'embeddings'" in shown
    raw: dict[str, Any] = yaml.safe_load(overlaid("shop"))
    raw |= {"methods": {"captions": ENTRY | {"epochs": 1}}, "compare_encoders": ["base", "captions"]}
    raw["train"] = {"checkpoint_dir": "state/train", "validation_images": 0}
    Path("params.yaml").write_text(yaml.safe_dump(raw))
    settings = load_settings()
    prepare.run(settings)
    tiny_encoder.save(Path("models/base"))
    embed(settings)
    assert "64 pictures embedded again have a median cosine of 1.000" in capsys.readouterr().out
    train(settings, "captions")
    cliptune("index", "build", "index", "--from", "shop", "--encoder", "models/base")
    index, asked = ImageIndex.open(Path("index")), dict[str, Any]()
    for encoder in ("base", "captions"):
        exported = ["export", "--encoder", f"models/{encoder}", "--format", product.serves, "--output", f"to_{encoder}"]
        cliptune(*exported)
        queries = find_format(product.serves).read(Path(f"to_{encoder}"), QUERIES, []).texts
        own = find_encoder(f"models/{encoder}").encoder.embed_texts(QUERIES)
        found, asked[encoder] = index.search(own, k=10), product.asked(queries)
        # Row `number` of the index is the picture of key `number`; pictures of one cosine may change places.
        theirs = own @ index.vector(range(len(index))).T
        scores = np.take_along_axis(theirs, np.array(asked[encoder]), axis=1)
        np.testing.assert_allclose(scores, found.scores, atol=1e-5)
    assert asked["base"] != asked["captions"]
    assert product.content() == before


def test_refusals_in_one_line(pgvector_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = pgvector_server.new_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE EXTENSION vector")
        connection.execute("CREATE TABLE keyless (title text, embedding vector(3))")
        connection.execute("CREATE TABLE two (id int PRIMARY KEY, title text, a vector(3), b vector(4))")
        connection.execute("CREATE TABLE secret (id int PRIMARY KEY, title text, embedding vector(3))")
        connection.execute("CREATE ROLE reader LOGIN PASSWORD 'hidden'")
        connection.execute("GRANT SELECT ON keyless, two TO reader")
    reader = url.replace(f"postgres:{pgvector_server.password}", "reader:hidden")
    shutil.copy(REPO / "params.yaml", tmp_path)
    for place, words in (
        (f"{reader}?table=none", "no table 'none': name one with table=NAME"),
        (f"{reader}?table=keyless", "table 'keyless' has 0 columns as primary key: name one with key=COLUMN"),
        (f"{reader}?table=two", "table 'two' has 2 columns of vectors: name one with vector=COLUMN"),
        (f"{reader}?table=two&vector=c", "table 'two' has no column 'c': its columns are id, title, a, b"),
        (f"{reader}?table=secret", "permission denied for table secret"),
        (f"{reader}?table=two&vector=a", "it has no rows"),
        (reader.replace("hidden", "wrong") + "?table=two", "password authentication failed"),
    ):
        refusal = cliptune("init", "shop", "--index", place, code=1)
        assert words in refusal
        assert refusal.count("\n") == 1
        assert "hidden" not in refusal
        assert not Path("shop").exists()
