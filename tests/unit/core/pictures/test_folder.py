"""A folder's pictures are found under it alone; stored ones are read from where they lie, and no others."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.pictures import folder as picture_folder
from components.core.pictures.folder import PICTURE_BOUND, is_ignored, pictures_in, read_picture
from components.core.pictures.rgb import upright_rgb
from components.core.pictures.shard_files import ShardFiles
from components.core.pictures.shard_reader import ShardReader
from components.core.pictures.stored_pictures import PICTURE, Pictures
from components.core.system.errors import InputError
from components.core.system.user_files import Bound, RefusedError
from components.core.tables.files import image_id
from components.data.checked_pictures import check_picture
from components.data.source import UnusableError
from tests.support.shard_making import picture, write_tar

HEIC = b"\0\0\0\x24ftypheic\0\0\0\0mif1heicMiHB" + b"\0" * 100
AVIF = b"\0\0\0\x20ftypmif1\0\0\0\0mif1avifmiaf" + b"\0" * 100


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder as phones, computers and disks leave it."""
    shop = tmp_path / "shop"
    files = {
        "b.JPG": picture(8), "a/c.png": picture(8), "a/b/d.jpeg": picture(8), "notes.txt": b"x",
        "._b.JPG": b"AppleDouble", ".thumbnails/b.jpg": picture(9), "@eaDir/b.JPG/SYNOPHOTO_THUMB_M.jpg": picture(9),
        "__MACOSX/a/._c.png": b"x", "a/.@__thumb/c.png": picture(9), "Thumbs.db": b"x", "#recycle/x.jpg": picture(9),
    }  # fmt: skip
    for name, content in files.items():
        (shop / name).parent.mkdir(parents=True, exist_ok=True)
        (shop / name).write_bytes(content)
    return shop


def test_files_of_the_system_are_skipped_without_a_note(shop: Path) -> None:
    found = pictures_in(shop)
    assert found.names == ["a/b/d.jpeg", "a/c.png", "b.JPG"]
    assert found.notes == []


@pytest.mark.parametrize("name", ["./a/b.jpg", "a/../b.jpg", "a.b/c.jpg", "recycle/a.jpg", "a@eaDir.jpg"])
def test_other_names_are_the_users(name: str) -> None:
    assert not is_ignored(name)


def test_heic_files_are_counted_under_any_name(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IMG_1.HEIC", "a/IMG_2.heif", "IMG_3.jpg"):
        (shop / name).write_bytes(HEIC)
    (shop / "e.avif").write_bytes(AVIF)
    monkeypatch.setattr(picture_folder, "reads_heic", lambda: False)
    found = pictures_in(shop)
    assert found.names == ["a/b/d.jpeg", "a/c.png", "b.JPG", "e.avif"]
    assert found.notes == ["3 HEIC files: pip install pillow-heif, or convert them to JPEG"]
    monkeypatch.setattr(picture_folder, "reads_heic", lambda: True)
    assert len(pictures_in(shop).names) == 7


def test_a_folder_of_heic_files_alone_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_folder, "reads_heic", lambda: False)
    (tmp_path / "IMG_1.HEIC").write_bytes(HEIC)
    with pytest.raises(InputError, match=r"has no pictures .*; 1 HEIC file: pip install pillow-heif"):
        pictures_in(tmp_path).require()


def test_links_out_pipes_and_large_files_are_left_out_and_counted(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "passport.jpg").write_bytes(picture(8))
    (shop / "z1.jpg").symlink_to("../passport.jpg")
    (shop / "z2.jpg").symlink_to("b.JPG")
    (shop / "z3.jpg").symlink_to("/dev/zero")
    (shop / "z4.jpg").symlink_to("z4.jpg")
    (shop / "outside").symlink_to(tmp_path)
    os.mkfifo(shop / "z5.jpg")
    with (shop / "z6.jpg").open("wb") as stream:
        stream.truncate(60 << 30)
    found = pictures_in(shop)
    assert found.names == ["a/b/d.jpeg", "a/c.png", "b.JPG", "z2.jpg"]
    (note,) = found.notes
    assert note.startswith("5 of its files, the first: ")
    assert "z1.jpg is a link to a file outside" in note


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gone.jpg", "is not in"),
        ("../other.jpg", "is outside"),
        ("link.jpg", "is a link to a file outside"),
        ("self.jpg", "is not in"),
        ("pipe.jpg", "is not a plain file"),
        ("folder.jpg", "is not a plain file"),
        ("large.jpg", r"is too large \(60,000 MB, more than 64 MB\): replace it or raise prepare.max_picture_mb"),
        ("a\0.jpg", "is not in"),
        ("a" * 300 + ".jpg", "cannot be read"),
    ],
)
def test_a_refused_file_is_named_with_the_reason(name: str, why: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "folder.jpg").mkdir(parents=True)
    (tmp_path / "other.jpg").write_bytes(picture(8))
    (folder / "link.jpg").symlink_to(tmp_path / "other.jpg")
    (folder / "self.jpg").symlink_to(folder / "self.jpg")
    os.mkfifo(folder / "pipe.jpg")
    with (folder / "large.jpg").open("wb") as stream:
        stream.truncate(60_000_000_000)
    with pytest.raises(RefusedError, match=why):
        read_picture(folder / name, folder)


def test_a_folder_may_itself_be_a_link_and_have_links_inside(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(shop)
    (shop / "same.jpg").symlink_to(shop / "b.JPG")
    assert read_picture(tmp_path / "link" / "same.jpg", tmp_path / "link") == picture(8)


def test_a_file_as_large_as_the_bound_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"12345")
    assert read_picture(tmp_path / "a.jpg", tmp_path, Bound(5, "it")) == b"12345"
    with pytest.raises(RefusedError, match="raise it"):
        read_picture(tmp_path / "a.jpg", tmp_path, Bound(4, "it"))
    assert PICTURE_BOUND.bytes == 64_000_000


def test_heic_files_are_read_where_the_package_is_installed(tmp_path: Path) -> None:
    heif = pytest.importorskip("pillow_heif")
    heif.register_heif_opener()
    (tmp_path / "IMG_1.jpg").write_bytes(picture(8, "HEIF", (64, 48)))
    assert pictures_in(tmp_path).names == ["IMG_1.jpg"]
    raw = read_picture(tmp_path / "IMG_1.jpg", tmp_path)
    check_picture(raw, "it")
    assert upright_rgb(raw).size == (64, 48)
    with pytest.raises(UnusableError):
        check_picture(raw[: len(raw) // 2], "it")


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
