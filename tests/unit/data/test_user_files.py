"""Files of a user's folder that are links, pipes, too large or HEIC are left out and counted; lists are refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.cli.own_data.survey import problems, survey
from components.core.pictures import folder as picture_folder
from components.core.settings import Settings
from components.data import prepare, row_files
from components.data.source import Unusable
from tests.support.shard_making import make_shards, picture
from tests.unit.core.pictures.test_folder import HEIC
from tests.unit.data.sources.reading import assert_refused, pairs_of, prepare_settings

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


def test_odd_files_are_left_out_with_their_reason(shop: Path, settings: Make) -> None:
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


def test_a_setting_bounds_pictures(shop: Path, settings: Make) -> None:
    (shop / "7.jpg").write_bytes(picture(7) + b"\0" * 1_100_000)
    assert_refused(settings(max_picture_mb=1), r"7\.jpg, which is too large \(1 MB, more than 1 MB\): .*max_picture_mb")
    assert len(pairs_of(settings(max_picture_mb=2))) == 12


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


def test_a_line_without_an_end_is_refused_before_it_is_in_memory(
    shop: Path, settings: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_files, "_LONGEST_LINE", 1_000)
    with (shop / "captions.tsv").open("a") as stream:
        stream.write("7.jpg\t" + "long " * 300)
    assert_refused(settings(), r"captions\.tsv: line 22 has more than 1,000 letters: shorten or remove it")


def test_shards_and_tables_that_are_links_out_are_refused_and_hidden_ones_skipped(
    settings: Make, tmp_path: Path
) -> None:
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
