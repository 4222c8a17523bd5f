"""Source `embeddings`: clip-retrieval's layout and others without pictures, and files that do not fit each other."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.pictures.embedding_files import read_embeddings
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.records import CAPTION_QUERIES, PAIRS, SPLITS, UNUSABLE
from components.data import prepare
from components.data.sources import embeddings, find_source

ROWS, DIM = 12, 4
COUNTS = {"train": 20, "val": 2, "test": 2}


def vectors(number: int) -> Any:
    return np.random.default_rng(number).normal(size=(ROWS, DIM)).astype(np.float32)


def told(number: int) -> dict[str, Any]:
    captions = [f"caption {number * ROWS + row}" for row in range(ROWS)]
    return {"image_path": [f"a/{row}.jpg" for row in range(ROWS)], "caption": captions}


def write_clip_retrieval(folder: Path) -> None:
    """Two files, of which the second has a two-digit number."""
    for place, number in enumerate((9, 10)):
        (folder / "img_emb").mkdir(parents=True, exist_ok=True)
        (folder / "metadata").mkdir(exist_ok=True)
        np.save(folder / f"img_emb/img_emb_{number}.npy", vectors(place))
        pq.write_table(pa.table(told(place)), folder / f"metadata/metadata_{number}.parquet")


def write_beside(folder: Path) -> None:
    folder.mkdir()
    for place, name in enumerate(("part-0", "part-1")):
        np.save(folder / f"{name}.npy", vectors(place))
        pq.write_table(pa.table(told(place)), folder / f"{name}.parquet")


def write_columns(folder: Path) -> None:
    folder.mkdir()
    for place in range(2):
        table = pa.table(told(place) | {"embedding": list(vectors(place))})
        pq.write_table(table, folder / f"{place}.parquet", row_group_size=5)


WRITERS = {"clip-retrieval": write_clip_retrieval, "beside": write_beside, "columns": write_columns}


@pytest.fixture
def settings(tmp_path: Path, raw_params: dict[str, Any]) -> Callable[..., Settings]:
    def make(writer: str = "clip-retrieval", **changes: Any) -> Settings:
        WRITERS[writer](tmp_path / "set")
        found = {"source": "embeddings", "folder": str(tmp_path / "set"), "counts": COUNTS} | changes
        return Settings.model_validate(raw_params | {"prepare": raw_params["prepare"] | found})

    return make


@pytest.mark.parametrize("writer", WRITERS)
def test_pairs_refer_to_their_rows_in_order(writer: str, settings: Any, tmp_path: Path) -> None:
    prepare.run(settings(writer), tmp_path / "pairs", tmp_path / "evaluation")
    everything = np.concatenate([vectors(0), vectors(1)])
    for split in SPLITS:
        rows = PAIRS.read(tmp_path / "pairs" / f"{split}.parquet").to_pylist()
        assert len(rows) == COUNTS[split]
        for row in rows:
            assert row["image"] is None
            assert row["size"] is None
            number = int(row["caption"].removeprefix("caption "))
            found = read_embeddings(Path(row["file"]), row["position"], 1)[0]
            np.testing.assert_array_equal(found, everything[number])
    queries = CAPTION_QUERIES.read(tmp_path / "evaluation" / "caption_queries.parquet")["text"].to_pylist()
    assert queries == PAIRS.read(tmp_path / "pairs" / "test.parquet")["caption"].to_pylist()
    assert find_source("embeddings").found_in(tmp_path / "set") is not None


def test_parts_are_cut_anywhere(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "_CHUNK", 5)
    made = settings("columns")
    captions = [pair.caption for pair in find_source("embeddings").usable(made, [])]
    assert sorted(captions) == sorted(f"caption {number}" for number in range(24))
    trained = [int(caption.removeprefix("caption ")) for caption in captions[4:]]
    assert trained == sorted(trained)


def test_names_of_files_are_splits(settings: Any, tmp_path: Path) -> None:
    made = settings("beside", counts={"train": 10, "val": 2, "test": 4})
    for ending in ("npy", "parquet"):
        (tmp_path / "set" / f"part-1.{ending}").rename(tmp_path / "set" / f"test-1.{ending}")
    pairs = list(find_source("embeddings").usable(made, []))
    assert [pair.caption for pair in pairs if pair.split == "test"] == [f"caption {12 + row}" for row in range(4)]


def test_one_image_more_moves_none_from_training_to_testing(settings: Any, tmp_path: Path) -> None:
    def splits() -> dict[str, set[str]]:
        pairs = list(find_source("embeddings").usable(made, []))
        return {split: {pair.image_id for pair in pairs if pair.split == split} for split in SPLITS}

    made = settings("beside")
    for number in range(20):
        before = splits()
        np.save(tmp_path / "set" / f"{number}.npy", vectors(number + 2)[:1])
        pq.write_table(pa.table(told(number)).slice(0, 1), tmp_path / "set" / f"{number}.parquet")
        after = splits()
        assert not after["test"] & before["train"]
        assert len(after["test"] & before["test"]) >= COUNTS["test"] - 1


def test_rows_that_are_zero_or_not_finite_or_have_no_caption_are_listed(settings: Any, tmp_path: Path) -> None:
    made = settings(counts=COUNTS | {"train": 17}, max_unusable_share=0.5)
    broken = vectors(0)
    broken[3, 1], broken[4] = np.nan, 0
    np.save(tmp_path / "set/img_emb/img_emb_9.npy", broken)
    rows = told(0)
    rows["caption"][5] = None
    pq.write_table(pa.table(rows), tmp_path / "set/metadata/metadata_9.parquet")
    prepare.run(made, tmp_path / "pairs", tmp_path / "evaluation")
    reasons = UNUSABLE.read(tmp_path / "pairs" / "unusable.parquet")["reason"].to_pylist()
    assert "img_emb_9.npy: row 4 is zero or not finite" in reasons[0]
    assert "img_emb_9.npy: row 5 is zero or not finite" in reasons[1]
    assert "metadata_9.parquet: row 6 has an empty caption" in reasons[2]
    assert len(reasons) == 3


FAULTS: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "cut array": (
        "clip-retrieval",
        lambda folder: (folder / "img_emb/img_emb_9.npy").write_bytes(b"\x93NUMPY"),
        r"img_emb_9\.npy is damaged",
    ),
    "pickled array": (
        "clip-retrieval",
        lambda folder: np.save(folder / "img_emb/img_emb_9.npy", np.array([{}] * ROWS), allow_pickle=True),
        r"img_emb_9\.npy (is damaged|holds object)",
    ),
    "integers": (
        "clip-retrieval",
        lambda folder: np.save(folder / "img_emb/img_emb_9.npy", np.ones((ROWS, DIM), np.int64)),
        r"img_emb_9\.npy holds int64 of shape \(12, 4\), which are not rows of embeddings",
    ),
    "one row less": (
        "clip-retrieval",
        lambda folder: np.save(folder / "img_emb/img_emb_9.npy", vectors(0)[1:]),
        r"img_emb_9\.npy has 11 rows, .*metadata_9\.parquet has 12",
    ),
    "no metadata": (
        "clip-retrieval",
        lambda folder: (folder / "metadata/metadata_10.parquet").unlink(),
        r"metadata_10\.parquet is missing: put",
    ),
    "cut metadata": (
        "clip-retrieval",
        lambda folder: (folder / "metadata/metadata_10.parquet").write_bytes(b"PAR1"),
        r"metadata_10\.parquet is damaged",
    ),
    "no caption": (
        "beside",
        lambda folder: pq.write_table(pa.table({"label": [1] * ROWS}), folder / "part-0.parquet"),
        r"part-0\.parquet has the columns label and none for the caption",
    ),
    "rows of two widths": (
        "columns",
        lambda folder: pq.write_table(
            pa.table(told(0) | {"embedding": [[1.0]] * 11 + [[1.0, 2.0]]}), folder / "0.parquet"
        ),
        r"0\.parquet has rows of different width",
    ),
    "nothing": ("beside", lambda folder: [path.unlink() for path in folder.iterdir()], "no embeddings to train on"),
}


def test_files_that_do_not_fit_are_named(settings: Any, tmp_path: Path) -> None:
    for fault, (writer, damage, message) in FAULTS.items():
        shutil.rmtree(tmp_path / "set", ignore_errors=True)
        made = settings(writer)
        damage(tmp_path / "set")
        with pytest.raises(InputError) as caught:
            list(find_source("embeddings").usable(made, []))
        assert re.search(message, str(caught.value)), (fault, str(caught.value))
