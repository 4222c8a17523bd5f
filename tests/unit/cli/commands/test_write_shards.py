"""Pairs written as shards are read back as the same pairs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from PIL import Image

from components.cli.commands.write_shards import main, write_shards
from components.core.pictures.shard_files import ShardFiles
from components.core.pictures.shard_reader import ShardReader
from components.core.system.errors import InputError
from components.core.tables.records import PAIRS
from tests.support.shard_making import picture


def _pairs(path: Path, rows: list[tuple[str, bytes, str]]) -> Path:
    ids, images, captions = map(list, zip(*rows, strict=True))
    PAIRS.write(path, {"id": ids, "image_id": ids, "image": images, "caption": captions, "facts": [None] * len(rows)})
    return path


def _seven() -> list[tuple[str, bytes, str]]:
    kinds = ["PNG", "JPEG", "WEBP"]
    return [(f"id{number}", picture(number, kinds[number % 3]), f"caption é {number}") for number in range(7)]


def test_pairs_come_back_as_they_were(tmp_path: Path) -> None:
    output = tmp_path / "shards"
    sizes = write_shards(_pairs(tmp_path / "pairs.parquet", [*_seven(), _seven()[2]]), output, 3)
    assert sizes == json.loads((output / "sizes.json").read_text()) == {"00000.tar": 3, "00001.tar": 3, "00002.tar": 1}
    reader = ShardReader(ShardFiles(), {"png", "jpg", "webp", "txt"}, {})
    found = [sample for name in sizes for sample in reader.read(str(output / name))]
    expected = [
        (key, {ending: image, "txt": caption.encode()})
        for (key, image, caption), ending in zip(_seven(), ["png", "jpg", "webp"] * 3, strict=False)
    ]
    assert [(sample.key, dict(sample.members)) for sample in found] == expected
    # A JPEG with a second picture is a JPEG.
    stream = io.BytesIO()
    Image.new("RGB", (9, 9)).save(stream, "MPO", save_all=True, append_images=[Image.new("RGB", (9, 9), "red")])
    write_shards(_pairs(tmp_path / "one.parquet", [("a", stream.getvalue(), "x")]), tmp_path / "one", 1)
    (sample,) = ShardReader(ShardFiles(), {"jpg"}, {}).read(str(tmp_path / "one" / "00000.tar"))
    assert sample.members["jpg"] == stream.getvalue()


def test_equal_pairs_give_equal_bytes_and_replace_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs, output, contents = _pairs(tmp_path / "pairs.parquet", _seven()), tmp_path / "shards", []
    for samples, shards in ((2, 4), (1, 7), (2, 4)):
        main(pairs, output, samples)
        assert f"wrote 7 pairs in {shards} shards" in capsys.readouterr().out
        assert len(list(output.glob("*.tar"))) == shards
        contents.append({path.name: path.read_bytes() for path in output.iterdir()})
    assert contents[0] == contents[2]
    with pytest.raises(SystemExit):
        main(tmp_path / "nowhere.parquet", output, 4)
    assert "nowhere.parquet is missing" in capsys.readouterr().err


def test_wrong_pairs_and_folders_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    output, path = tmp_path / "shards", tmp_path / "pairs.parquet"
    for row, message in (
        (("a.b", picture(1), "x"), "id 'a.b' cannot name files"),
        (("a/b", picture(1), "x"), "id 'a/b' cannot name files"),
        (("a", b"hello", "x"), r"the image of pair a cannot be written \(no known format\): replace it"),
        (("a", picture(1, "BMP"), "x"), r"the image of pair a cannot be written \('BMP'\): replace it with a JPEG"),
    ):
        with pytest.raises(InputError, match=message):
            write_shards(_pairs(path, [*_seven(), row]), output, 2)
        assert not output.exists()
    with pytest.raises(InputError, match=r"holds pairs\.parquet, which is not a shard"):
        write_shards(path, tmp_path, 2)
    with pytest.raises(InputError, match="is a file"):
        write_shards(path, path, 2)
    assert path.exists()
