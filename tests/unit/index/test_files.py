"""`index.json`, vectors and rows of an index are read as they were written, or refused."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from components.core.system.errors import InputError
from components.core.tables.files import content_hash
from components.index import rows as rows_module
from components.index.facts import FACTS, ColumnKind, Facts, Segment, files_of, read_facts, write_facts
from components.index.rows import Rows, column_kind, fitted, further_columns, growing_rows, id_keys, schema_of
from components.index.vectors import open_segment
from tests.support.index_making import drawn

FACTS_OF_ONE = Facts(
    kind="exact", dim=4, image_tower_sha256="a" * 64, encoder="base",
    segments=(Segment(rows=3, vectors_sha256="0" * 64, rows_sha256="1" * 64),),
)  # fmt: skip


def test_facts_are_read_as_written_or_refused(tmp_path: Path) -> None:
    path, written = tmp_path / FACTS, write_facts(tmp_path, FACTS_OF_ONE)
    assert (read_facts(tmp_path), written.rows) == (written, 3)
    names = [str(file.relative_to(tmp_path)) for file in files_of(tmp_path, written)]
    assert names == ["vectors/000000.npy", "rows/000000.arrow"]
    for change, fault in (
        ({"image_tower_sha256": "b" * 64}, "was edited or damaged"),
        ({"kind": "../exact"}, "kind: String should match"),
        ({"file": "/etc/passwd"}, "file: Extra inputs"),
        ({"sha256": ""}, "was edited or damaged"),
    ):
        write_facts(tmp_path, FACTS_OF_ONE)
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        with pytest.raises(InputError, match=r"index\.json .*: build the index again") as raised:
            read_facts(tmp_path)
        assert fault in str(raised.value)
        assert "\n" not in str(raised.value)
    path.unlink()
    write_facts(tmp_path / "elsewhere", FACTS_OF_ONE)
    path.symlink_to(tmp_path / "elsewhere" / FACTS)
    with pytest.raises(InputError, match="is a link"):
        read_facts(tmp_path)


def test_an_index_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    old = json.loads(FACTS_OF_ONE.model_dump_json(exclude={"preparation"}))
    old["sha256"] = content_hash(json.dumps(old, separators=(",", ":"), ensure_ascii=False))
    (tmp_path / FACTS).write_text(json.dumps(old))
    assert read_facts(tmp_path).preparation == 1
    (tmp_path / FACTS).write_text(json.dumps(old | {"preparation": 2}))
    with pytest.raises(InputError, match="was edited or damaged"):
        read_facts(tmp_path)


def test_an_array_that_does_not_match_the_facts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    for content, fault in (
        (drawn(4)[:3], "holds float32 of shape (3, 8), index.json lists float32 of shape (4, 8)"),
        (drawn(4).astype(np.float64), "holds float64 of shape (4, 8)"),
        (drawn(4).copy("F"), "of shape (4, 8) column by column"),
        (np.array([{}] * 4), "is damaged"),
    ):
        np.save(path, content, allow_pickle=True)
        with pytest.raises(InputError, match=r"a\.npy.*build the index again") as raised:
            open_segment(path, 4, 8)
        assert fault in str(raised.value)
    path.write_bytes(pickle.dumps(print))
    with pytest.raises(InputError, match=r"a\.npy is damaged"):
        open_segment(path, 4, 8)


COLUMNS: dict[str, ColumnKind] = {"width": "int64"}


def table(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    output = {"image_id": [f"{number:016x}" for number in numbers], "width": list(numbers)}
    return fitted(pa.table(output), COLUMNS, "here")


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_BATCH", 4)


def written(folder: Path, counts: Sequence[int]) -> Rows:
    first, paths = 0, [folder / f"{number}.arrow" for number in range(len(counts))]
    for path, count in zip(paths, counts, strict=True):
        with growing_rows(path, schema_of(COLUMNS)) as append:
            for start in range(0, count, 3):
                append(table(first + start, min(3, count - start)))
        first += count
    return Rows(paths, counts, schema_of(COLUMNS))


@pytest.mark.usefixtures("small_batches")
def test_rows_are_taken_in_the_requested_order(tmp_path: Path) -> None:
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


@pytest.mark.usefixtures("small_batches")
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


@pytest.mark.usefixtures("small_batches")
def test_rows_that_do_not_match_the_facts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "0.arrow"
    written(tmp_path, (6,))
    with pytest.raises(InputError, match="does not have the columns"):
        Rows([path], [6], schema_of({}))
    with pytest.raises(InputError, match="does not have the 9 rows"):
        Rows([path], [9], schema_of(COLUMNS))
    with pytest.raises(InputError, match="does not have the 7 rows"):
        Rows([path], [7], schema_of(COLUMNS)).take(np.array([6]))
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(InputError, match="is a link"):
        Rows([path], [6], schema_of(COLUMNS))


def test_columns_are_kept_as_one_of_four_kinds() -> None:
    kinds = [pa.int16(), pa.float32(), pa.bool_(), pa.string(), pa.timestamp("s"), pa.null(), pa.list_(pa.int8())]
    output = [column_kind(kind) for kind in kinds]
    assert output == ["int64", "double", "bool", "string", "string", "string", None]
    given = pa.table({"image_id": ["a"], "width": pa.array([3], pa.int16()), "tags": [["x"]]})
    assert further_columns(given) == {"width": "int64"}
    assert fitted(given, {"width": "int64", "nsfw": "string"}, "here").to_pylist() == [
        {"image_id": "a", "caption": None, "name": None, "file": None, "position": None, "size": None, "width": 3,
         "nsfw": None}
    ]  # fmt: skip
    with pytest.raises(InputError, match="part 2: column 'width' is string, the index has int64: convert or rename it"):
        fitted(pa.table({"image_id": ["a"], "width": ["wide"]}), {"width": "int64"}, "part 2")


def test_different_image_ids_have_different_keys() -> None:
    own = pa.array(["00000000000000ff", "f" * 16])
    assert id_keys(own).tolist() == [255, 2**64 - 1]
    others = id_keys(pa.array(["00000000000000ff", "photo-1", "photo-2", "FFFFFFFFFFFFFFFF"]))
    assert others[0] == 255
    assert len(set(others.tolist())) == 4
