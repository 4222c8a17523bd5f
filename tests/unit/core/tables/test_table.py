"""Tables between stages: what breaks the contract is refused with file and row."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.pictures.stored_pictures import Pictures
from components.core.system.errors import InputError
from components.core.tables import parquet_rows
from components.core.tables.files import image_id
from components.core.tables.parquet_rows import batches, opened_parquet, rows_at_once
from components.core.tables.records import CAPTION_QUERIES, PAIRS, PUBLISHED_TEXTS
from components.core.tables.table import Table
from tests.conftest import REPO

ROWS: dict[str, list[Any]] = {"image_id": ["a", "b", "c"], "text": ["x", "y", "z"], "register": ["plain"] * 3}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table.parquet"


def _write_raw(path: Path, **changed: Any) -> None:
    """Past the contract, straight to Parquet."""
    pq.write_table(pa.table({**ROWS, **changed}), path)


def test_columns_may_be_left_out_but_no_values(path: Path) -> None:
    for value, row in ((["x", None, "z"], 1), (["x", "y", ""], 2), ([None, "", "z"], 0)):
        _write_raw(path, text=value)
        with pytest.raises(InputError, match=rf"table\.parquet: row {row} has no 'text'"):
            CAPTION_QUERIES.read(path)
        path.unlink()
        with pytest.raises(InputError, match=rf"row {row} has no 'text'"):
            CAPTION_QUERIES.write(path, {**ROWS, "text": list(value)})
        assert not path.exists()
    with pytest.raises(InputError, match="row 1 has no 'key'"):
        PUBLISHED_TEXTS.write(path, {"test_set": ["a", "b"], "key": [b"x", b""]})
    PAIRS.write(path, {"id": ["a"], "image_id": ["x"], "caption": ["c"], "image": [b"i"]})
    found = PAIRS.read(path).select(["image", "facts", "size"]).to_pylist()
    assert found == [{"image": b"i", "facts": None, "size": None}]
    pq.write_table(pa.table({"id": ["a"], "image_id": ["x"], "caption": ["c"]}), path)
    (block,) = PAIRS.blocks(path, ["file", "caption"])
    assert block.to_pylist() == [{"file": None, "caption": "c"}]
    assert PAIRS.read(path, ["weight", "caption"]).to_pylist() == [{"weight": None, "caption": "c"}]
    assert PAIRS.read(path, ["weight"]).to_pylist() == [{"weight": None}]


def test_wrong_files_are_named_whatever_byte_is_damaged(path: Path) -> None:
    with pytest.raises(InputError, match=r"table\.parquet is missing: run `dvc repro`"):
        CAPTION_QUERIES.read(path)
    _write_raw(path, text=[1, 2, 3])
    with pytest.raises(InputError, match=r"table\.parquet: column 'text' is int64, .* has string"):
        CAPTION_QUERIES.read(path)
    pq.write_table(pa.table({"image_id": ["a"], "text": ["x"]}), path)
    with pytest.raises(InputError, match=r"table\.parquet .*register"):
        CAPTION_QUERIES.read(path)
    CAPTION_QUERIES.write(path, ROWS)
    assert CAPTION_QUERIES.read(path, ["text"]).to_pydict() == {"text": ROWS["text"]}
    whole = path.read_bytes()
    for keep in (0, 3, 100, -1):
        path.write_bytes(whole[:keep])
        with pytest.raises(InputError, match=r"table\.parquet cannot be read") as refused:
            CAPTION_QUERIES.read(path)
        assert "\n" not in str(refused.value)
    for at in range(0, len(whole), 37):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            CAPTION_QUERIES.read(path)
        except InputError as error:
            assert str(path) in str(error)  # noqa: PT017


@given(st.lists(st.text(min_size=1, max_size=20), max_size=8))
def test_any_text_survives(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.mktemp("texts") / "t.parquet"
    CAPTION_QUERIES.write(path, {"image_id": ["i"] * len(texts), "text": [*texts], "register": ["p"] * len(texts)})
    assert CAPTION_QUERIES.read(path)["text"].to_pylist() == texts


def test_a_picture_of_several_captions_takes_its_room_once(path: Path) -> None:
    pictures = [random.Random(number).randbytes(150_000) for number in range(8)]
    rows = [f"row {row}" for row in range(40)]
    with PAIRS.writer(path) as append:
        for start in range(0, 40, 16):
            ids = rows[start : start + 16]
            images: list[object] = [pictures[(start + row) // 5] for row in range(len(ids))]
            append({"id": [*ids], "image_id": [*ids], "image": images, "caption": [*ids], "facts": [None] * len(ids)})
    assert path.stat().st_size < 1.6 * 8 * 150_000
    assert PAIRS.read(path)["image"].to_pylist() == [pictures[row // 5] for row in range(40)]


@given(rows=st.sets(st.integers(0, 19)), block=st.sampled_from([1, 3, 7, 20, 512]))
def test_rows_are_taken_by_their_numbers(tmp_path_factory: pytest.TempPathFactory, rows: set[int], block: int) -> None:
    path = tmp_path_factory.getbasetemp() / "twenty.parquet"
    if not path.exists():
        columns = {"image_id": [f"i{row}" for row in range(20)], "text": [f"t{row}" for row in range(20)]}
        CAPTION_QUERIES.write(path, {**columns, "register": ["plain"] * 20})
    found = CAPTION_QUERIES.take(path, sorted(rows), ["text", "image_id"], block)
    assert found.to_pylist() == [{"text": f"t{row}", "image_id": f"i{row}"} for row in sorted(rows)]


@pytest.mark.slow
def test_rows_are_taken_from_a_column_of_more_than_2_gib(path: Path) -> None:
    """Sixty-eight pictures of 32 MiB in a file of a few kilobytes; memory holds two at a time."""
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("image", pa.binary(), nullable=False)])
    big, blank = Table("big", schema), bytes(1 << 25)
    count = (1 << 31) // len(blank) + 4
    with big.writer(path) as append:
        for row in range(count):
            append({"id": [str(row)], "image": [blank]})
    assert path.stat().st_size < 1 << 24
    found = big.take(path, [0, count - 1], ["id", "image"], block=2).to_pydict()
    assert found["id"] == ["0", str(count - 1)]
    assert [len(image) for image in found["image"]] == [len(blank)] * 2


_LIMITED = """
import resource, sys
from dataclasses import replace
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
from pathlib import Path
from components.core.pictures.stored_pictures import Pictures
from components.core.settings import Counts, Prepare
from components.core.tables.files import image_id
from components.data.sources.folder import FILES
from components.data.sources.huggingface import read_splits
folder = Path(sys.argv[1])
if (folder / "vectors.parquet").exists():
    from components.core.pictures.embedding_files import embedding_shape, read_embeddings
    rows, _ = embedding_shape(folder / "vectors.parquet")
    print(rows, len(read_embeddings(folder / "vectors.parquet", 100, 50)))
    raise SystemExit
if (folder / "captions.parquet").exists():
    print(sum(len(row["caption"]) for _, row in FILES.rows(folder / "captions.parquet", {"caption": ("caption",)})))
    raise SystemExit
settings = Prepare(source="huggingface", folder=folder, counts=Counts(train=1, val=1, test=1))
samples = [replace(sample, raw=None) for chunk in read_splits(settings)["train"] for sample in chunk.read()]
print(len(samples))
with Pictures() as pictures:
    for one in samples[::40]:
        row = {"image": None, "file": one.file, "position": one.position, "size": one.size, "image_id": one.image_id}
        print(len(pictures.one(row)))
"""
LIMIT = 2_300_000_000


def _read_under_limit(folder: Path) -> list[int]:
    """What a process with little memory for addresses prints."""
    command = [sys.executable, "-c", _LIMITED, str(folder), str(LIMIT)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(REPO)}
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, env=environment, cwd=REPO)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return [int(line) for line in ended.stdout.split()]


@pytest.mark.slow
def test_large_pictures_captions_and_vectors_are_read_in_pages(tmp_path: Path) -> None:
    pictures = [os.urandom(5_000_000) for _ in range(4)]
    rows = pa.table({"image": [pictures[row % 4] for row in range(100)], "caption": ["a cup"] * 100})
    pq.write_table(rows, tmp_path / "train-0.parquet", write_batch_size=1, use_dictionary=False, compression="none")
    assert _read_under_limit(tmp_path) == [100, *[5_000_000] * 3]
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int32()), pa.array([b"\0" * 20_000_000]))
    rows = pa.table({"image": shared, "caption": ["a cup"] * 100})
    pq.write_table(rows, tmp_path / "train-0.parquet", store_schema=False)
    assert _read_under_limit(tmp_path)[0] == 100
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 65_536, pa.int32()), pa.array(["a" * 60_000]))
    rows = pa.table({"image": ["0.jpg"] * 65_536, "caption": shared})
    pq.write_table(rows, tmp_path / "captions.parquet", store_schema=False)
    assert _read_under_limit(tmp_path) == [65_536 * 60_000]
    block = pa.FixedSizeListArray.from_arrays(pa.array(np.random.default_rng(0).random(1 << 20, np.float32)), 1024)
    # A gigabyte and a half of vectors.
    rows = pa.table({"embedding": pa.chunked_array([block] * 370)})
    pq.write_table(rows, tmp_path / "vectors.parquet", row_group_size=rows.num_rows, use_dictionary=False)
    assert _read_under_limit(tmp_path) == [rows.num_rows, 50]


@pytest.mark.parametrize("most", [1, 40_000, 1 << 28])
def test_batches_hold_all_rows_in_order(most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_rows, "_BATCH", most)
    texts = [f"{row}" for row in range(3_000)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=1_000)
    with opened_parquet(tmp_path / "a.parquet") as stored:
        read = [batch[0].to_pylist() for group in range(3) for batch in batches(stored, group, ["text"])]
        assert list(chain.from_iterable(read)) == texts
        assert 1 <= rows_at_once(stored.metadata.row_group(0), [0]) <= 1 << 16


def test_pictures_are_found_in_any_order(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": [f"{row}".encode() for row in range(50)]}), file, row_group_size=7)
    with Pictures() as pictures:
        for row in (3, 4, 48, 2, 49, 0, 0, 13, 14):
            raw = f"{row}".encode()
            place = {"image": None, "file": str(file), "position": row, "size": len(raw), "image_id": image_id(raw)}
            assert pictures.one(place) == raw
