"""A folder's pictures are found under it alone; stored ones are read from where they lie, and no others."""

from __future__ import annotations

import io
import os
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import ExifTags, Image

from components.core.pictures import folder as picture_folder
from components.core.pictures.folder import PICTURE_BOUND, is_ignored, pictures_in, read_picture
from components.core.pictures.rgb import (
    TooLargeError,
    check_size,
    open_picture,
    rgb,
    upright,
    upright_jpeg,
    upright_rgb,
)
from components.core.pictures.shard_files import ShardFiles
from components.core.pictures.shard_reader import ShardReader
from components.core.pictures.stored_pictures import PICTURE, Pictures
from components.core.system.errors import InputError
from components.core.system.user_files import Bound, RefusedError
from components.core.tables.files import image_id
from components.data.checked_pictures import check_picture
from components.data.source import UnusableError
from components.encoders.adapter.images import Preparation
from components.evaluation.report.gallery import data_uri
from components.serving.explorer.server import small_jpeg
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


def test_files_of_the_system_are_skipped_and_links_and_large_files_counted(shop: Path, tmp_path: Path) -> None:
    found = pictures_in(shop)
    assert found.names == ["a/b/d.jpeg", "a/c.png", "b.JPG"]
    assert found.notes == []
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


def test_a_linked_folder_and_a_file_as_large_as_the_bound_are_read(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(shop)
    (shop / "same.jpg").symlink_to(shop / "b.JPG")
    assert read_picture(tmp_path / "link" / "same.jpg", tmp_path / "link") == picture(8)
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


def test_pictures_are_read_from_more_files_than_stay_open(files: list[dict[str, Any]], tmp_path: Path) -> None:
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


UPRIGHT = np.zeros((24, 16, 3), np.uint8)
UPRIGHT[:8] = (250, 0, 0)
UPRIGHT[:, :4] = (0, 250, 0)
TURNS = {
    1: lambda pixels: pixels,
    2: np.fliplr,
    3: lambda pixels: np.rot90(pixels, 2),
    4: np.flipud,
    5: lambda pixels: pixels.transpose(1, 0, 2),
    6: np.rot90,
    7: lambda pixels: np.rot90(pixels, 2).transpose(1, 0, 2),
    8: lambda pixels: np.rot90(pixels, -1),
}
"""EXIF orientation -> how the upright picture is stored."""


def sideways(orientation: int, format_: str = "PNG", **options: object) -> bytes:
    """The picture `UPRIGHT` stored so that the orientation turns it upright; its EXIF data name a place."""
    stream, exif = io.BytesIO(), Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    exif[ExifTags.Base.ImageDescription] = "52.5 N 13.4 E"
    Image.fromarray(np.ascontiguousarray(TURNS[orientation](UPRIGHT))).save(stream, format_, exif=exif, **options)
    return stream.getvalue()


@pytest.mark.parametrize("orientation", TURNS)
@pytest.mark.parametrize("format_", ["PNG", "TIFF", "WEBP", "JPEG", "AVIF"])
def test_is_upright_and_has_no_metadata(format_: str, orientation: int) -> None:
    options = {"lossless": True} if format_ == "WEBP" else {} if format_ in ("PNG", "TIFF") else {"quality": 95}
    shown = upright_rgb(sideways(orientation, format_, **options))
    assert shown.size == (16, 24)
    assert np.abs(np.asarray(shown).astype(int) - UPRIGHT).mean() < (30 if options.get("quality") else 1)
    assert not shown.info
    assert b"13.4 E" not in upright_jpeg(sideways(orientation, format_), 64)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
@pytest.mark.parametrize("exif", [b"garbage", b"II*\0\xff\xff\xff\xff", b"", b"MM\0*\0\0\0\x08\xff\xff"])
def test_a_damaged_orientation_is_ignored(exif: bytes) -> None:
    stream = io.BytesIO()
    Image.fromarray(UPRIGHT).save(stream, "PNG", exif=b"Exif\0\0" + exif)
    assert np.array_equal(upright_rgb(stream.getvalue()), UPRIGHT)


def test_a_users_picture_is_upright_for_the_tower_and_on_pages_but_a_published_one_is_as_stored() -> None:
    tower, raw = Preparation(size=16, resize_mode="squash"), sideways(6)
    own = tower.decode([raw])[0].permute(1, 2, 0).numpy()
    with Image.fromarray(UPRIGHT) as image:
        assert np.array_equal(own, tower.fitted(image))
    with open_picture(raw) as image:
        assert not np.array_equal(own, tower.fitted(image))
    for jpeg in (small_jpeg(raw, 128, "it"), upright_jpeg(raw, 128)):
        with open_picture(jpeg) as image:
            assert image.size == (16, 24)
    assert data_uri(sideways(6, "JPEG", quality=95)).startswith("data:image/jpeg")


def _tiff(tile: int) -> bytes:
    """A TIFF of 64x64 pixels in one compressed tile of this side."""
    payload = zlib.compress(b"\0" * 4096)
    values = {256: 64, 257: 64, 258: 8, 259: 8, 262: 1, 277: 1, 322: tile, 323: tile, 324: 134, 325: len(payload)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in values.items())
    return b"II*\0" + struct.pack("<IH", 8, len(values)) + entries + struct.pack("<I", 0) + payload


def _jpeg(scans: int) -> bytes:
    """A progressive JPEG whose last scan is repeated."""
    stream = io.BytesIO()
    Image.new("L", (64, 64), 128).save(stream, "JPEG", progressive=True)
    raw = stream.getvalue()
    last = raw.rfind(b"\xff\xda")
    return raw[:-2] + raw[last:-2] * scans + raw[-2:]


@pytest.mark.parametrize(
    ("raw", "why"), [(_tiff(40_000), "40000x40000 pixels are more"), (_jpeg(400), r"40\d scans are more than 200")]
)
def test_tiles_count_as_pixels_and_scans_are_counted(raw: bytes, why: str) -> None:
    with pytest.raises(UnusableError, match=why):
        check_picture(raw, "it")
    with pytest.raises(TooLargeError, match=why):
        upright_rgb(raw)
    with pytest.raises(InputError, match=why):
        Preparation(size=16).decode([raw])


def test_ordinary_tiles_and_grey_of_16_bits_are_read() -> None:
    for raw in (_jpeg(10), sideways(6, "JPEG", progressive=True)):
        check_picture(raw, "it")
    with open_picture(_tiff(64)) as image:
        check_size(image)
    stream, exif = io.BytesIO(), Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    Image.fromarray(np.full((16, 24), 65535, np.uint16)).save(stream, "PNG", exif=exif)
    with open_picture(stream.getvalue()) as image:
        shown = rgb(upright(image))
    assert shown.size == (16, 24)
    assert np.asarray(shown).min() == 255
