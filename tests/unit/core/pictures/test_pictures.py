"""Pictures are read from where they lie, and another picture in the same place is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.pictures.shards.listing import ShardFiles
from components.core.pictures.shards.reader import ShardReader
from components.core.pictures.stored_pictures import PICTURE, Pictures
from components.core.system.errors import InputError
from components.core.tables.files import image_id
from tests.support.shard_making import picture, write_tar

RAW = [picture(number) for number in (8, 9, 10)]


def _rows(places: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([dict.fromkeys(PICTURE) | place for place in places])


@pytest.fixture
def files(tmp_path: Path) -> list[dict[str, Any]]:
    """Three pictures: in a shard, in a Parquet file of two row groups, and one as a file."""
    shard, table, file = tmp_path / "0.tar", tmp_path / "0.parquet", tmp_path / "0.png"
    write_tar(shard, [("a.txt", b"text"), ("a.png", RAW[0])])
    (sample,) = ShardReader(ShardFiles(), {"png"}, {}).read(str(shard))
    column = pa.array([{"bytes": RAW[2], "path": ""}, {"bytes": RAW[1], "path": ""}])
    pq.write_table(pa.table({"image": column}), table, row_group_size=1)
    file.write_bytes(RAW[2])
    places = [(shard, sample.positions["png"]), (table, 1), (file, None)]
    return [
        {"file": str(path), "position": position, "size": len(raw), "image_id": image_id(raw)}
        for (path, position), raw in zip(places, RAW, strict=True)
    ]


def test_pictures_are_read_wherever_they_lie(files: list[dict[str, Any]]) -> None:
    inside = {"image": RAW[0], "image_id": image_id(RAW[0])}
    with Pictures() as pictures:
        assert pictures.of(_rows([*files, inside, *reversed(files)])) == [*RAW, RAW[0], *reversed(RAW)]


def test_more_files_than_stay_open(files: list[dict[str, Any]], tmp_path: Path) -> None:
    shards = []
    for number in range(20):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(Path(files[0]["file"]).read_bytes())
        shards.append(files[0] | {"file": str(path)})
    with Pictures() as pictures:
        assert pictures.of(_rows(shards + shards)) == [RAW[0]] * 40


def test_a_changed_picture_is_refused(files: list[dict[str, Any]]) -> None:
    for file in files:
        place = file | {"image_id": image_id(b"another")}
        with Pictures() as pictures, pytest.raises(InputError, match=r"differs from the picture .* -f prepare"):
            pictures.of(_rows([place]))


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("fault", ["missing", "cut"])
def test_a_file_that_is_gone_or_cut_is_named(number: int, fault: str, files: list[dict[str, Any]]) -> None:
    path = Path(files[number]["file"])
    if fault == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:20])
    with Pictures() as pictures, pytest.raises(InputError, match=rf"{path.name}.*-f prepare"):
        pictures.of(_rows([files[number]]))


def test_a_row_beyond_the_table_is_named(files: list[dict[str, Any]]) -> None:
    with Pictures() as pictures, pytest.raises(InputError, match=r"0\.parquet cannot be read \(it has 2 rows, not 8\)"):
        pictures.of(_rows([files[1] | {"position": 7}]))


def test_an_embedding_is_no_picture() -> None:
    row = {"file": "img_emb_0.npy", "position": 3, "image_id": "abc"}
    with Pictures() as pictures, pytest.raises(InputError, match="image abc has only an embedding"):
        pictures.of(_rows([row]))
