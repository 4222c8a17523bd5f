"""Parquet files are read in bounded memory: large pictures in one row group, and values that many rows share."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.pictures.stored_pictures import Pictures
from components.core.tables import parquet_rows
from components.core.tables.files import image_id
from components.core.tables.parquet_rows import batches, opened_parquet, rows_at_once
from tests.conftest import REPO

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
def test_a_row_group_of_large_pictures_is_read_in_pages(tmp_path: Path) -> None:
    pictures = [os.urandom(5_000_000) for _ in range(4)]
    rows = pa.table({"image": [pictures[row % 4] for row in range(100)], "caption": ["a cup"] * 100})
    pq.write_table(rows, tmp_path / "train-0.parquet", write_batch_size=1, use_dictionary=False, compression="none")
    assert _read_under_limit(tmp_path) == [100, *[5_000_000] * 3]


@pytest.mark.slow
def test_a_picture_that_many_rows_share_is_read_row_by_row(tmp_path: Path) -> None:
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int32()), pa.array([b"\0" * 20_000_000]))
    rows = pa.table({"image": shared, "caption": ["a cup"] * 100})
    pq.write_table(rows, tmp_path / "train-0.parquet", store_schema=False)
    assert _read_under_limit(tmp_path)[0] == 100


@pytest.mark.slow
def test_a_caption_that_many_rows_share_is_read_in_few_rows(tmp_path: Path) -> None:
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 65_536, pa.int32()), pa.array(["a" * 60_000]))
    rows = pa.table({"image": ["0.jpg"] * 65_536, "caption": shared})
    pq.write_table(rows, tmp_path / "captions.parquet", store_schema=False)
    assert _read_under_limit(tmp_path) == [65_536 * 60_000]


@pytest.mark.slow
def test_vectors_in_one_row_group_are_read_in_batches(tmp_path: Path) -> None:
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
