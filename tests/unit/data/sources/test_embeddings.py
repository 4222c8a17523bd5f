"""Source `embeddings`: clip-retrieval's layout and others without pictures, and files that do not fit each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.pictures.embedding_files import read_embeddings
from components.core.settings import Settings
from components.core.tables.records import SPLITS, UNUSABLE
from components.data.sources import embeddings, find_source
from tests.unit.data.sources import reading
from tests.unit.data.sources.reading import Damage, assert_refused, holding, pairs_of, without

ROWS, DIM = 12, 4
COUNTS = {"train": 20, "val": 2, "test": 2}


def vectors(number: int) -> Any:
    return np.random.default_rng(number).normal(size=(ROWS, DIM)).astype(np.float32)


def captioned(number: int) -> dict[str, Any]:
    captions = [f"caption {number * ROWS + row}" for row in range(ROWS)]
    return {"image_path": [f"a/{row}.jpg" for row in range(ROWS)], "caption": captions}


def write_pairs(folder: Path, arrays: str, tables: str, numbers: tuple[int, int]) -> None:
    """Two files of embeddings and their captions; the second may have a two-digit number."""
    for place, number in enumerate(numbers):
        for path in (array := folder / arrays.format(number), table := folder / tables.format(number)):
            path.parent.mkdir(parents=True, exist_ok=True)
        np.save(array, vectors(place))
        pq.write_table(pa.table(captioned(place)), table)


def write_columns(folder: Path) -> None:
    folder.mkdir()
    for place in range(2):
        table = pa.table(captioned(place) | {"embedding": list(vectors(place))})
        pq.write_table(table, folder / f"{place}.parquet", row_group_size=5)


WRITERS: dict[str, Damage] = {
    "clip-retrieval": lambda to: write_pairs(to, "img_emb/img_emb_{}.npy", "metadata/metadata_{}.parquet", (9, 10)),
    "beside": lambda to: write_pairs(to, "part-{}.npy", "part-{}.parquet", (0, 1)),
    "columns": write_columns,
}


@pytest.fixture
def settings(tmp_path: Path, raw_params: dict[str, Any]) -> Callable[..., Settings]:
    def make(writer: str = "clip-retrieval", **changes: Any) -> Settings:
        WRITERS[writer](tmp_path / "set")
        named = {"source": "embeddings", "folder": str(tmp_path / "set"), "counts": COUNTS}
        return reading.prepare_settings(raw_params, **named | changes)

    return make


@pytest.mark.parametrize("writer", WRITERS)
def test_pairs_refer_to_their_rows_in_order(writer: str, settings: Any, tmp_path: Path) -> None:
    pairs = reading.prepared(settings(writer), tmp_path)
    assert {split: len(rows) for split, rows in pairs.items()} == COUNTS
    everything = np.concatenate([vectors(0), vectors(1)])
    for row in (row for rows in pairs.values() for row in rows):
        assert (row["image"], row["size"]) == (None, None)
        found = read_embeddings(Path(row["file"]), row["position"], 1)[0]
        np.testing.assert_array_equal(found, everything[int(row["caption"].removeprefix("caption "))])
    assert [query["text"] for query in reading.caption_queries(tmp_path)] == [pair["caption"] for pair in pairs["test"]]
    assert find_source("embeddings").found_in(tmp_path / "set") is not None


def test_parts_are_cut_anywhere(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "_CHUNK", 5)
    captions = [pair.caption for pair in pairs_of(settings("columns"))]
    assert sorted(captions) == sorted(f"caption {number}" for number in range(24))
    trained = [int(caption.removeprefix("caption ")) for caption in captions[4:]]
    assert trained == sorted(trained)


def test_names_of_files_are_splits(settings: Any, tmp_path: Path) -> None:
    made = settings("beside", counts={"train": 10, "val": 2, "test": 4})
    for ending in ("npy", "parquet"):
        (tmp_path / "set" / f"part-1.{ending}").rename(tmp_path / "set" / f"test-1.{ending}")
    tests = [pair.caption for pair in pairs_of(made) if pair.split == "test"]
    assert tests == [f"caption {12 + row}" for row in range(4)]


def test_one_image_more_moves_none_from_training_to_testing(settings: Any, tmp_path: Path) -> None:
    def splits() -> dict[str, set[str]]:
        pairs = pairs_of(made)
        return {split: {pair.image_id for pair in pairs if pair.split == split} for split in SPLITS}

    made = settings("beside")
    for number in range(20):
        before = splits()
        np.save(tmp_path / "set" / f"{number}.npy", vectors(number + 2)[:1])
        pq.write_table(pa.table(captioned(number)).slice(0, 1), tmp_path / "set" / f"{number}.parquet")
        after = splits()
        assert not after["test"] & before["train"]
        assert len(after["test"] & before["test"]) >= COUNTS["test"] - 1


def test_rows_that_are_zero_or_not_finite_or_have_no_caption_are_listed(settings: Any, tmp_path: Path) -> None:
    made = settings(counts=COUNTS | {"train": 17}, max_unusable_share=0.5)
    broken = vectors(0)
    broken[3, 1], broken[4] = np.nan, 0
    np.save(tmp_path / "set/img_emb/img_emb_9.npy", broken)
    rows = captioned(0)
    rows["caption"][5] = None
    pq.write_table(pa.table(rows), tmp_path / "set/metadata/metadata_9.parquet")
    reading.prepared(made, tmp_path)
    reasons = UNUSABLE.read(tmp_path / "pairs" / "unusable.parquet")["reason"].to_pylist()
    faults = ("row 4 is zero or not finite", "row 5 is zero or not finite", "row 6 has an empty caption")
    assert all(fault in reason for fault, reason in zip(faults, reasons, strict=True))


ARRAY, TABLE = "img_emb/img_emb_9.npy", "metadata/metadata_10.parquet"


def array(values: Any) -> Damage:
    """Gives the first file other embeddings."""
    return lambda folder: np.save(folder / ARRAY, values, allow_pickle=True)


def table(name: str, **columns: Any) -> Damage:
    """Gives a Parquet file other columns."""
    return lambda folder: pq.write_table(pa.table(columns), folder / name)


@pytest.mark.parametrize(
    ("writer", "damage", "message"),
    [
        ("clip-retrieval", holding(ARRAY, b"\x93NUMPY"), r"img_emb_9\.npy is damaged"),
        ("clip-retrieval", array(np.array([{}] * ROWS)), r"img_emb_9\.npy (is damaged|holds object)"),
        ("clip-retrieval", array(np.ones((ROWS, DIM), np.int64)), r"int64 of shape \(12, 4\), which are not rows"),
        ("clip-retrieval", array(vectors(0)[1:]), r"img_emb_9\.npy has 11 rows, .*metadata_9\.parquet has 12"),
        ("clip-retrieval", without(TABLE), r"metadata_10\.parquet is missing: put"),
        ("clip-retrieval", holding(TABLE, b"PAR1"), r"metadata_10\.parquet is damaged"),
        ("beside", table("part-0.parquet", label=[1] * ROWS), r"has the columns label and none for 'caption'"),
        ("columns", table("0.parquet", **captioned(0), embedding=[[1.0]] * 11 + [[1.0, 2.0]]),
         r"0\.parquet has rows of different width"),
        ("beside", lambda folder: [path.unlink() for path in folder.iterdir()], "no embeddings to train on"),
    ],
)  # fmt: skip
def test_files_that_do_not_fit_are_named(
    writer: str, damage: Damage, message: str, settings: Any, tmp_path: Path
) -> None:
    made = settings(writer)
    damage(tmp_path / "set")
    assert_refused(made, message)
