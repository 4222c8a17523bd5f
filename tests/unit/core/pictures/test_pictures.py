"""Pictures are read from where they lie, and another picture in the same place is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.pictures.shard_files import ShardFiles
from components.core.pictures.shard_reader import ShardReader
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


def test_pictures_are_read_from_shards_tables_and_files_also_from_more_than_stay_open(
    files: list[dict[str, Any]], tmp_path: Path
) -> None:
    inside = {"image": RAW[0], "image_id": image_id(RAW[0])}
    shards = [files[0] | {"file": str(tmp_path / f"copy{number}.tar")} for number in range(20)]
    for shard in shards:
        shutil.copy(files[0]["file"], shard["file"])
    with Pictures() as pictures:
        assert pictures.of(_rows([*files, inside, *reversed(files)])) == [*RAW, RAW[0], *reversed(RAW)]
        assert pictures.of(_rows(shards + shards)) == [RAW[0]] * 40


def test_changed_missing_and_cut_pictures_are_refused_with_their_file(files: list[dict[str, Any]]) -> None:
    def refused(place: dict[str, Any], message: str) -> None:
        with Pictures() as pictures, pytest.raises(InputError, match=message):
            pictures.of(_rows([place]))

    refused(files[1] | {"position": 7}, r"0\.parquet cannot be read \(it has 2 rows, not 8\)")
    refused({"file": "img_emb_0.npy", "position": 3, "image_id": "abc"}, "image abc has only an embedding")
    for file in files:
        refused(file | {"image_id": image_id(b"another")}, r"differs from the picture .* -f prepare")
        path = Path(file["file"])
        path.write_bytes(path.read_bytes()[:20])
        refused(file, rf"{path.name}.*-f prepare")
        path.unlink()
        refused(file, rf"{path.name}.*-f prepare")
