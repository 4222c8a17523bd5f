"""Pictures are checked once and again after a change; links, pipes, large files and HEIC are left out."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from components.cli.own_data.survey import problems, survey
from components.core.pictures import folder as picture_folder
from components.core.settings import Counts, Prepare, Settings
from components.core.system.errors import InputError
from components.core.tables.work_shard import Shard
from components.data import checked_pictures, listed_images, prepare, row_files
from components.data.checked_pictures import check_picture, checked
from components.data.source import PictureChunk, Sample, Unusable, UnusableError
from tests.support.shard_making import make_shards, picture
from tests.unit.core.pictures.test_folder import HEIC
from tests.unit.data.sources.reading import assert_refused, pairs_of, prepare_settings

PARTS, IN_PART = 6, 3


def _read(number: int, log: Path) -> Iterator[Sample | Unusable]:
    with log.open("a") as stream:
        stream.write(f"{number}\n")
    yield Unusable(f"nothing at {number}", 2)
    for place in range(IN_PART):
        raw = b"no image" if place == 0 else picture(8 + number * IN_PART + place)
        yield Sample.of(raw, f"{number}/{place}", f"{number}.tar", place, (f"caption {place}",), "name")


def _killed(log: Path) -> Iterator[Sample]:
    log.touch()
    os.kill(os.getpid(), 9)
    yield from ()


Run = Callable[..., list[Sample | Unusable]]


@pytest.fixture
def parts(tmp_path: Path) -> list[PictureChunk]:
    return [
        PictureChunk(f"stamp {number}", partial(_read, number, tmp_path / "log"), IN_PART + 1)
        for number in range(PARTS)
    ]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Checks parts in so many processes."""

    def check(parts: list[PictureChunk], processes: int = 1) -> list[Sample | Unusable]:
        counts, state = Counts(train=1, val=1, test=1), tmp_path / f"by{processes}"
        return list(checked(parts, Prepare(source="s", counts=counts, processes=processes, state=state)))

    return check


def _log(tmp_path: Path) -> list[int]:
    """The parts that were checked since the last call."""
    checked_parts = sorted(map(int, (tmp_path / "log").read_text().split()))
    (tmp_path / "log").unlink()
    return checked_parts


def test_processes_give_the_same_pictures_in_order(parts: list[PictureChunk], run: Run, tmp_path: Path) -> None:
    one = run(parts)
    assert one == run(parts, 3)
    assert _log(tmp_path) == sorted([*range(PARTS)] * 2)
    assert one[0] == Unusable("nothing at 0", 2)
    assert isinstance(one[1], Unusable)
    assert one[1].reason.startswith("0/0 is not a readable image")
    read = [sample for sample in _read(0, tmp_path / "log") if isinstance(sample, Sample)]
    assert one[2 : IN_PART + 1] == [replace(sample, raw=None) for sample in read[1:]]


def test_only_changes_are_checked_or_the_kill_is_named(parts: list[PictureChunk], run: Run, tmp_path: Path) -> None:
    before = run(parts)
    _log(tmp_path)
    assert run([*parts[:2], PictureChunk("another stamp", parts[2].read, 1), *parts[3:]]) == before
    assert _log(tmp_path) == [2]
    parts[4] = PictureChunk("killed", partial(_killed, tmp_path / "log"), 1)
    with pytest.raises(InputError, match=r"was killed.*lower prepare\.processes"):
        run(parts, 2)


def _tiff(kind: Any) -> bytes:
    pixels = np.linspace(0, 1, 256).reshape(16, 16).astype(kind)
    Image.fromarray(pixels).save(buffer := io.BytesIO(), "TIFF")
    return buffer.getvalue()


def _saved(size: tuple[int, int], kind: str, mode: str = "L") -> bytes:
    Image.new(mode, size).save(buffer := io.BytesIO(), kind)
    return buffer.getvalue()


_POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n%%EOF\n"


def test_a_picture_that_cannot_be_used_has_one_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a picture's name: Pillow lets Ghostscript draw PostScript."""
    for raw, reason in (
        (_POSTSCRIPT, "no known format"),
        (_saved((16, 16), "ICO"), "no known format"),
        (_saved((10_000, 4_001), "PNG", "1"), "10000x4001 pixels are more than 40,000,000"),
        (_saved((257, 1), "PNG"), "257x1 pixels are too long and narrow"),
        (_saved((64, 64), "AVIF")[:-20] + bytes(20), "Failed to decode frame 0: .*"),
        (_tiff(np.float32), ".* save it with 8 or 16 bits"),
        (_tiff(np.int32), ".* save it with 8 or 16 bits"),
    ):
        with pytest.raises(UnusableError, match=rf"^x\.jpg is not a readable image \({reason}\): replace or"):
            check_picture(raw, "x.jpg")
    check_picture(_tiff(np.uint16), "x.tif")
    for kind in (RuntimeError, TypeError, NotImplementedError, AttributeError, MemoryError):
        monkeypatch.setattr(Image.Image, "draft", Mock(side_effect=kind))
        with pytest.raises(UnusableError, match=rf"x\.png is not a readable image \({kind.__name__}\)"):
            check_picture(_saved((16, 16), "PNG"), "x.png")


COUNTS = {"train": 8, "val": 2, "test": 2}
Make = Callable[..., Settings]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Twenty pictures and their captions."""
    shop = tmp_path / "shop"
    shop.mkdir()
    for number in range(20):
        (shop / f"{number}.jpg").write_bytes(picture(number))
    lines = "".join(f"{number}.jpg\tpicture number {number}\n" for number in range(20))
    (shop / "captions.tsv").write_text("image\tcaption\n" + lines)
    return shop


@pytest.fixture
def settings(tmp_path: Path, raw_params: dict[str, Any]) -> Make:
    named = {"source": "folder", "folder": str(tmp_path / "shop"), "counts": COUNTS}
    return lambda **changes: prepare_settings(raw_params, **named | changes)


def _spoil(shop: Path) -> None:
    """One picture becomes a link out, one a named pipe, one has 60 GB."""
    for number in (3, 4, 5):
        (shop / f"{number}.jpg").unlink()
    (shop.parent / "passport.jpg").write_bytes(picture(99))
    (shop / "3.jpg").symlink_to(shop.parent / "passport.jpg")
    os.mkfifo(shop / "4.jpg")
    with (shop / "5.jpg").open("wb") as stream:
        stream.truncate(60 << 30)


def test_odd_files_are_left_out_with_their_reason_and_a_setting_bounds_them(shop: Path, settings: Make) -> None:
    (shop / "7.jpg").write_bytes(picture(7) + b"\0" * 1_100_000)
    assert_refused(settings(max_picture_mb=1), r"7\.jpg, which is too large \(1 MB, more than 1 MB\): .*max_picture_mb")
    assert len(pairs_of(settings(max_picture_mb=2))) == 12
    _spoil(shop)
    lost = list[Unusable]()
    pairs = pairs_of(settings(max_unusable_share=0.5), lost)
    assert {pair.name for pair in pairs}.isdisjoint({"shop/3.jpg", "shop/4.jpg", "shop/5.jpg"})
    for one, why in zip(
        lost,
        ("line 5 names 3.jpg, which is a link to a file outside", "is not a plain file", "is too large"),
        strict=True,
    ):
        assert why in one.reason
    found = survey(shop)
    assert len(found.described.unusable) == 3
    assert problems(found)[0].startswith("3 images that captions.tsv names are missing or damaged")


def test_heic_files_are_counted_in_one_line(
    shop: Path, settings: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(picture_folder, "reads_heic", lambda: False)
    for number in (2, 9, 11):
        (shop / f"{number}.jpg").write_bytes(HEIC)
    line = "3 HEIC files: pip install pillow-heif, or convert them to JPEG"
    assert any(problem.startswith(line) for problem in problems(survey(shop)))
    assert_refused(settings(), rf"{line}; the first: .* names 2\.jpg, .*\(3 of at most 20 images cannot be used")
    prepare.run(settings(max_unusable_share=0.5), tmp_path / "pairs", tmp_path / "evaluation")
    assert f"prepare: {line}" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["link", "large"])
def test_a_list_that_is_a_link_or_too_large_is_one_line(kind: str, shop: Path, settings: Make, tmp_path: Path) -> None:
    listed = shop / "captions.tsv"
    if kind == "link":
        listed.rename(tmp_path / "elsewhere.tsv")
        listed.symlink_to(tmp_path / "elsewhere.tsv")
        assert_refused(settings(), r"captions\.tsv is a link to a file outside .*shop: copy the file into the folder")
    else:
        os.truncate(listed, 3_000_000)
        assert_refused(settings(max_list_mb=2), r"captions\.tsv is too large \(3 MB, more than 2 MB\): .*max_list_mb")


def test_a_line_without_an_end_is_not_read_whole(shop: Path, settings: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "_LONGEST_LINE", 1_000)
    with (shop / "captions.tsv").open("a") as stream:
        stream.write("7.jpg\t" + "long " * 300)
    assert_refused(settings(), r"captions\.tsv: line 22 has more than 1,000 letters: shorten or remove it")


def test_shards_and_tables_that_are_links_out_are_refused_hidden_ones_skipped(settings: Make, tmp_path: Path) -> None:
    shards, table = tmp_path / "shards", tmp_path / "table"
    make_shards(shards, 2, 20)
    (shards / "._000.tar").write_bytes(b"AppleDouble")
    assert len(pairs_of(settings(source="webdataset", folder=str(shards)))) == 12
    (shards / "001.tar").rename(tmp_path / "001.tar")
    (shards / "001.tar").symlink_to(tmp_path / "001.tar")
    assert_refused(settings(source="webdataset", folder=str(shards)), r"001\.tar is a link to a file outside")
    table.mkdir()
    rows = {"image": [picture(number) for number in range(20)], "caption": [f"picture {n}" for n in range(20)]}
    pq.write_table(pa.table(rows), table / "train-0.parquet")
    (table / "._train-0.parquet").write_bytes(b"AppleDouble")
    assert len(pairs_of(settings(source="huggingface", folder=str(table)))) == 12
    (table / "train-0.parquet").rename(tmp_path / "train-0.parquet")
    (table / "train-0.parquet").symlink_to(tmp_path / "train-0.parquet")
    assert_refused(settings(source="huggingface", folder=str(table)), r"train-0\.parquet is a link to a file outside")


COUNTED = {"train": 17, "val": 2, "test": 2}
PICTURES, IN_PARTS, SHARDS = 21, 7, 3


def _write_folder(folder: Path) -> None:
    folder.mkdir()
    for number in range(PICTURES):
        (folder / f"{number}.png").write_bytes(picture(number))
    lines = [f"{number}.png\tpicture number {number}\n" for number in range(PICTURES)]
    (folder / "captions.tsv").write_text("".join(["image\tcaption\n", *lines]))


@pytest.fixture(params=["folder", "webdataset"])
def split(
    request: pytest.FixtureRequest, tmp_path: Path, raw_params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """Of 21 pictures in seven parts."""
    if request.param == "folder":
        monkeypatch.setattr(listed_images, "_CHUNK", PICTURES // IN_PARTS)
        _write_folder(tmp_path / "pictures")
    else:
        make_shards(tmp_path / "pictures", IN_PARTS, PICTURES // IN_PARTS)
    folder = str(tmp_path / "pictures")
    return prepare_settings(raw_params, source=request.param, folder=folder, counts=COUNTED, processes=1)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each picture was checked, by its place."""
    found: Counter[str] = Counter()

    def watched(raw: bytes, place: str) -> None:
        found[place] += 1
        check_picture(raw, place)

    monkeypatch.setattr(checked_pictures, "check_picture", watched)
    return found


def _run(settings: Settings, folder: Path) -> dict[str, bytes]:
    """The stage's files and their bytes."""
    prepare.run(settings, folder / "pairs", folder / "evaluation")
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _elsewhere(settings: Settings, state: Path) -> Settings:
    return settings.model_copy(update={"prepare": settings.prepare.model_copy(update={"state": state})})


def test_each_part_is_checked_by_one_shard_and_the_stage_gives_the_same_bytes(
    split: Settings, tmp_path: Path, looks: Counter[str], capsys: pytest.CaptureFixture[str]
) -> None:
    made = []
    for number in range(SHARDS):
        before = set(split.prepare.state.glob("*"))
        prepare.check(split, Shard(number, SHARDS))
        made.append(len(set(split.prepare.state.glob("*")) - before))
    assert made == [3, 2, 2]
    assert list(looks.values()) == [1] * PICTURES
    printed = [f"prepare shard {number}/{SHARDS}: made {count}" for number, count in enumerate(made)]
    assert capsys.readouterr().out.splitlines() == printed
    assert not (tmp_path / "of shards").exists()
    found = _run(split, tmp_path / "of shards")
    assert list(looks.values()) == [1] * PICTURES
    assert found == _run(_elsewhere(split, tmp_path / "alone"), tmp_path / "of one")


def test_shards_are_read_as_written_and_other_texts_and_sources_refused(raw_params: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"source 'synthetic' cannot be split: run prepare without --shard"):
        prepare.check(Settings.model_validate(raw_params), Shard(0, 2))
    assert Shard.parse("1/4") == Shard(1, 4)
    assert str(Shard(1, 4)) == "1/4"
    for text in ("3/3", "1", "a/b", "-1/4", "1/"):
        with pytest.raises(InputError, match="is not a shard: give for example 0/4"):
            Shard.parse(text)
