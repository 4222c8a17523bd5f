"""Tables between stages: what breaks the contract is refused with file and row."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.system.errors import InputError
from components.core.tables.records import CAPTION_QUERIES, PAIRS, PUBLISHED_TEXTS
from components.core.tables.table import Table

ROWS: dict[str, list[Any]] = {"image_id": ["a", "b", "c"], "text": ["x", "y", "z"], "register": ["plain"] * 3}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table.parquet"


def _write_raw(path: Path, **changed: Any) -> None:
    """Past the contract, straight to Parquet."""
    pq.write_table(pa.table({**ROWS, **changed}), path)


def test_rows_without_a_value_are_named_and_not_written(path: Path) -> None:
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


def test_optional_columns_may_be_left_out_when_written_and_when_read(path: Path) -> None:
    PAIRS.write(path, {"id": ["a"], "image_id": ["x"], "caption": ["c"], "image": [b"i"]})
    found = PAIRS.read(path).select(["image", "facts", "size"]).to_pylist()
    assert found == [{"image": b"i", "facts": None, "size": None}]
    pq.write_table(pa.table({"id": ["a"], "image_id": ["x"], "caption": ["c"]}), path)
    (block,) = PAIRS.blocks(path, ["file", "caption"])
    assert block.to_pylist() == [{"file": None, "caption": "c"}]
    assert PAIRS.read(path, ["weight", "caption"]).to_pylist() == [{"weight": None, "caption": "c"}]
    assert PAIRS.read(path, ["weight"]).to_pylist() == [{"weight": None}]


def test_missing_and_wrong_files_and_columns_are_named(path: Path) -> None:
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


def test_every_damaged_byte_is_noticed_or_harmless(path: Path) -> None:
    CAPTION_QUERIES.write(path, ROWS)
    whole = path.read_bytes()
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
