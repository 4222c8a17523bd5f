"""Rows in Arrow files: taken in any order, by column, and never from a file that Arrow has not looked at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from components.core.errors import InputError
from components.index import rows as module
from components.index.facts import ColumnKind
from components.index.rows import Rows, column_kind, fitted, further_columns, growing_rows, id_keys, schema_of

COLUMNS: dict[str, ColumnKind] = {"width": "int64"}


def table(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    told = {"image_id": [f"{number:016x}" for number in numbers], "width": list(numbers)}
    return fitted(pa.table(told), COLUMNS, "here")


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH", 4)


def written(folder: Path, counts: Sequence[int]) -> Rows:
    first, paths = 0, [folder / f"{number}.arrow" for number in range(len(counts))]
    for path, count in zip(paths, counts, strict=True):
        with growing_rows(path, schema_of(COLUMNS)) as append:
            for start in range(0, count, 3):
                append(table(first + start, min(3, count - start)))
        first += count
    return Rows(paths, counts, schema_of(COLUMNS))


def test_rows_are_taken_in_the_order_asked_for(tmp_path: Path) -> None:
    rows = written(tmp_path, (10, 1, 5))
    asked = [15, 0, 10, 3, 4, 3, 9]
    found = rows.take(np.array(asked))
    assert found["width"].to_pylist() == asked
    assert found["image_id"].to_pylist() == [f"{number:016x}" for number in asked]
    assert found["caption"].to_pylist() == [None] * 7
    assert rows.take(np.empty(0, np.int64)).num_rows == 0
    assert rows.column("width").to_pylist() == list(range(16))
    assert rows.keys().tolist() == list(range(16))
    with pytest.raises(InputError, match="no column 'height': it has image_id, caption"):
        rows.column("height")


def test_an_offset_out_of_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "0.arrow"
    written(tmp_path, (4,))
    raw = path.read_bytes()
    # The offsets of the four ids: 16 bytes each.
    offsets = np.arange(0, 80, 16, dtype="<i8").tobytes()
    assert raw.count(offsets) == 1
    path.write_bytes(raw.replace(offsets, np.array([0, 16, 1 << 40, 48, 64], "<i8").tobytes()))
    with pytest.raises(InputError, match=r"0\.arrow is damaged .*: build the index again"):
        Rows([path], [4], schema_of(COLUMNS)).take(np.array([1]))


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "0.arrow"
    written(tmp_path, (6,))
    with pytest.raises(InputError, match="has other columns"):
        Rows([path], [6], schema_of({}))
    with pytest.raises(InputError, match="has not the 9 rows"):
        Rows([path], [9], schema_of(COLUMNS))
    with pytest.raises(InputError, match="has not the 7 rows"):
        Rows([path], [7], schema_of(COLUMNS)).take(np.array([6]))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="is damaged"):
        Rows([path], [6], schema_of(COLUMNS))
    path.unlink()
    with pytest.raises(InputError, match="is missing"):
        Rows([path], [6], schema_of(COLUMNS))
    path.symlink_to("/dev/zero")
    with pytest.raises(InputError, match="is a link"):
        Rows([path], [6], schema_of(COLUMNS))


def test_columns_are_kept_as_one_of_four_kinds() -> None:
    kinds = [pa.int16(), pa.float32(), pa.bool_(), pa.string(), pa.timestamp("s"), pa.null(), pa.list_(pa.int8())]
    told = [column_kind(kind) for kind in kinds]
    assert told == ["int64", "double", "bool", "string", "string", "string", None]
    given = pa.table({"image_id": ["a"], "width": pa.array([3], pa.int16()), "tags": [["x"]]})
    assert further_columns(given) == {"width": "int64"}
    assert fitted(given, {"width": "int64", "nsfw": "string"}, "here").to_pylist() == [
        {"image_id": "a", "caption": None, "name": None, "file": None, "position": None, "size": None, "width": 3,
         "nsfw": None}
    ]  # fmt: skip
    with pytest.raises(InputError, match="part 2: column 'width' is string, the index has int64: convert or rename it"):
        fitted(pa.table({"image_id": ["a"], "width": ["wide"]}), {"width": "int64"}, "part 2")


def test_keys_tell_images_apart() -> None:
    own = pa.array(["00000000000000ff", "f" * 16])
    assert id_keys(own).tolist() == [255, 2**64 - 1]
    others = id_keys(pa.array(["00000000000000ff", "photo-1", "photo-2", "FFFFFFFFFFFFFFFF"]))
    assert others[0] == 255
    assert len(set(others.tolist())) == 4
