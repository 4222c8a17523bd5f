"""CC-Neg and SugarCrepe++ as sources, as CoN-CLIP and SemCLIP publish them: what either tests does not train."""

from __future__ import annotations

import csv
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.settings import Settings
from components.core.tables.records import SEMCLIP_ROWS
from components.data import prepare
from components.data.sources import find_source
from components.data.test_sets.readers import cc_neg, sugar_crepe
from tests.unit.data.sources.reading import assert_refused, caption_queries, pairs_of, prepare_settings, prepared

ROWS, TESTED = 60, 8
LAST = set(range(ROWS - TESTED, ROWS))
"""What CoN-CLIP tests of CC-Neg."""
SHUFFLED = np.random.RandomState(42).permutation(ROWS)
TRAIN, VAL, TEST = (set(part.tolist()) for part in (SHUFFLED[:48], SHUFFLED[48:54], SHUFFLED[54:]))
"""The released code: shuffled by seed 42, the last tenth tests, the tenth before it validates."""
IMAGES = 40
"""Of SugarCrepe++: row n shows image n modulo 40, so some images are in two splits of rows."""

Make = Callable[..., Settings]


def _write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def _texts(number: int) -> dict[str, str]:
    return {"caption": f"caption {number}", "negation": f"no, {number}", "paraphrased": f"paraphrase {number}"}


@pytest.fixture
def world(tmp_path: Path, raw_params: dict[str, Any], png: Any, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Both files at 60 rows; of SugarCrepe++ the last 20 show the images and captions of the first 20."""
    monkeypatch.setattr(cc_neg, "ROWS", ROWS)
    monkeypatch.setattr(cc_neg, "TESTED", TESTED)
    monkeypatch.setattr(cc_neg, "HELD_OUT", 0)
    monkeypatch.setattr(sugar_crepe, "ROWS", ROWS)
    # The sources read these numbers when they are imported.
    for name in ("semclip_cc_neg", "semclip_sugar_crepe_pp"):
        monkeypatch.delitem(sys.modules, f"components.data.sources.{name}", raising=False)
    for count, folder, digits in ((ROWS, f"cc_neg/{cc_neg.IMAGES}", 9), (IMAGES, "sugar_crepe_pp/images", 12)):
        (tmp_path / folder).mkdir(parents=True)
        for number in range(count):
            (tmp_path / folder / f"{number:0{digits}d}.jpg").write_bytes(png((number, 1, digits)))
    rows = [{"image_number": str(number), **_texts(number)} for number in range(ROWS)]
    _write(tmp_path / "cc_neg" / cc_neg.CSV, rows)
    names = [f"{number:09d}.jpg" for number in range(ROWS)]
    columns = {"image_path": names, "caption": [f"thing {number}" for number in range(ROWS)], "negated": ["no"] * ROWS}
    pq.write_table(pa.table(columns), tmp_path / "cc_neg" / cc_neg.TABLE)
    shown = [_texts(number) | {"caption": f"caption {number % IMAGES}"} for number in range(ROWS)]
    shown = [{"filename": f"{number % IMAGES:012d}.jpg", **texts} for number, texts in enumerate(shown)]
    _write(tmp_path / "sugar_crepe_pp" / sugar_crepe.CSV, shown)

    def make(name: str, keep_out: str = "images", counts: tuple[int, int, int] = (60, 60, 60), **more: Any) -> Settings:
        source = {"source": f"semclip_{name}", "folder": str(tmp_path / name), "exclude_test_by": keep_out}
        wanted = dict(zip(("train", "val", "test"), counts, strict=True))
        return prepare_settings(raw_params, **source | {"counts": wanted} | more)

    return make


def _rows(settings: Settings, split: str) -> set[int]:
    """The rows of a split, by the numbers in their negations."""
    return {int(str(pair.negation).split()[-1]) for pair in pairs_of(settings) if pair.split == split}


@pytest.mark.parametrize("keep_out", ["images", "rows"])
def test_rows_are_split_as_released_where_each_has_its_image(world: Make, keep_out: str) -> None:
    settings = world("cc_neg", keep_out)
    assert [_rows(settings, split) for split in ("train", "val", "test")] == [TRAIN, VAL, TEST]
    bounded = world("cc_neg", keep_out, counts=(5, 2, 1))
    assert [len(_rows(bounded, split)) for split in ("train", "val", "test")] == [5, 2, 1]


def test_tested_images_are_kept_out_or_as_released_the_rows_alone(world: Make) -> None:
    settings = world("sugar_crepe_pp")
    tested = {number % IMAGES for number in TEST}
    watched = {number % IMAGES for number in VAL}
    assert _rows(settings, "test") == TEST
    assert _rows(settings, "val") == {number for number in VAL if number % IMAGES not in tested}
    assert _rows(settings, "train") == {number for number in TRAIN if number % IMAGES not in tested | watched}
    settings = world("sugar_crepe_pp", "rows")
    trained = {number % IMAGES for number in TRAIN}
    assert any(number % IMAGES in trained for number in TEST)
    assert _rows(settings, "train") == TRAIN
    # What the pipeline itself scores shows no image that trains.
    val = {number for number in VAL if number % IMAGES not in trained}
    assert _rows(settings, "val") == val
    shown = trained | {number % IMAGES for number in VAL}
    assert _rows(settings, "test") == {number for number in TEST if number % IMAGES not in shown}


def test_a_split_whose_images_are_all_elsewhere_is_refused(world: Make, tmp_path: Path) -> None:
    path = tmp_path / "sugar_crepe_pp" / sugar_crepe.CSV
    _write(path, [row | {"filename": f"{0:012d}.jpg"} for row in csv.DictReader(path.open(newline=""))])
    message = r"every image of split val is in another: set prepare.exclude_test_by to images"
    assert_refused(world("sugar_crepe_pp", "rows"), message)


def test_prepare_writes_a_row_of_texts_for_each_row_that_trains(world: Make, tmp_path: Path) -> None:
    settings = world("sugar_crepe_pp")
    pairs = prepared(settings, tmp_path)["train"]
    trained = _rows(settings, "train")
    table = SEMCLIP_ROWS.read(tmp_path / "pairs" / "semclip_rows.parquet").to_pylist()
    assert {int(row["published_negation"].split()[-1]) for row in table} == trained
    for row in table:
        number = int(row["published_negation"].split()[-1])
        assert row["published_paraphrase"] == f"paraphrase {number}"
        assert row["caption"] == f"caption {number % IMAGES}"
    # Rows of one image and caption are one pair with samples.
    assert sorted(pair["caption"] for pair in pairs) == sorted({f"caption {number % IMAGES}" for number in trained})
    assert {row["id"] for row in table} == {pair["id"] for pair in pairs}
    assert len({(row["id"], row["sample"]) for row in table}) == len(table) == len(trained) > len(pairs)
    queries = [query["text"] for query in caption_queries(tmp_path)]
    assert sorted(queries) == sorted({f"caption {number % IMAGES}" for number in TEST})


def test_a_text_that_a_test_set_holds_does_not_train_as_a_paraphrase(world: Make, tmp_path: Path) -> None:
    """The rows' images are new to the test set `cc_neg_semclip`; one row's paraphrase is one of its captions."""
    shutil.rmtree(tmp_path / "sugar_crepe_pp")
    (tmp_path / "cc_neg" / cc_neg.TABLE).unlink()
    path = tmp_path / "cc_neg" / cc_neg.CSV
    chosen, held = min(TRAIN), min(TEST)
    rows = list(csv.DictReader(path.open(newline="")))
    rows[chosen]["paraphrased"] = f"Caption {held}!"
    _write(path, rows)
    settings = world("cc_neg", heldout_testsets_dir=str(tmp_path))
    guard = prepare.Guard.of(settings.prepare)
    clean = guard.clean(find_source("semclip_cc_neg").pairs(settings))
    kept = {pair.negation for pair in clean if pair.split == "train"}
    assert kept == {f"no, {number}" for number in TRAIN - {chosen}}
    assert dict(guard.found) == {("cc_neg_semclip", "text"): 1}


@pytest.mark.parametrize("name", ["cc_neg", "sugar_crepe_pp"])
def test_cut_wrong_and_hostile_files_are_one_line(world: Make, tmp_path: Path, name: str) -> None:
    settings = world(name)
    path = tmp_path / name / str(find_source(f"semclip_{name}").file)
    whole = path.read_text()
    place = "0," if name == "cc_neg" else "000000000000.jpg,"
    lines = whole.splitlines(keepends=True)
    for content, message in [
        ("".join(lines[:31]), r"has 30 of 60 rows, so its last tenth by seed 42 is not the published test"),
        (whole.replace("negation", "negated", 1), "60 rows lack .* negation"),
        (whole.replace(place, '"../../../etc/passwd",', 1), "row 0 names the image .*, which is not a file name"),
        (whole.replace(lines[1], lines[1].rstrip() + ",surplus\r\n", 1), "row 0 .* has more fields than columns"),
        (whole.replace("caption 0", "c" * 200_000, 1), "is damaged"),
        ("", "has no row that can be scored"),
    ]:
        path.write_text(content)
        assert_refused(settings, message)
    path.unlink()
    assert_refused(settings, r"\.csv is missing: get it from the authors of SemCLIP")


def test_rows_without_a_text_are_left_out(world: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = min(TRAIN)
    path = tmp_path / "cc_neg" / cc_neg.CSV
    path.write_text(path.read_text().replace(f"paraphrase {chosen}\n", "\n"))
    assert _rows(world("cc_neg"), "train") == TRAIN - {chosen}
    assert "1 rows left out that lack a caption, a paraphrase or a negation" in capsys.readouterr().out


@pytest.fixture
def con_clip(world: Make, raw_params: dict[str, Any]) -> Make:
    """Settings of source `cc_neg`, which tests as CoN-CLIP does."""

    def make(seed: int = 0, counts: tuple[int, int, int] = (20, 4, TESTED), **more: Any) -> Settings:
        raw_params["dataset"]["seed"] = seed
        return world("cc_neg", counts=counts, source="cc_neg", **more)

    return make


def _shown(settings: Settings, *splits: str) -> set[int]:
    """The numbers of the images of these splits."""
    return {int(Path(pair.name).stem) for pair in pairs_of(settings) if pair.split in splits}


@pytest.mark.parametrize("seed", range(5))
def test_images_that_either_protocol_tests_do_not_train(con_clip: Make, seed: int) -> None:
    train, val, test = (_shown(con_clip(seed), split) for split in ("train", "val", "test"))
    assert (train | val).isdisjoint(LAST | TEST)
    assert test == LAST
    assert (len(train), len(val)) == (20, 4)
    assert train.isdisjoint(val)


def test_all_that_no_test_shows_trains_by_either_file(con_clip: Make, tmp_path: Path) -> None:
    left = set(range(ROWS)) - LAST - TEST
    assert _shown(con_clip(counts=(len(left) - 2, 2, TESTED)), "train", "val") == left
    message = rf"{len(left)} images are in no published test: lower them"
    assert_refused(con_clip(counts=(len(left) - 1, 2, TESTED)), message)
    (tmp_path / "cc_neg" / cc_neg.CSV).unlink()
    settings = con_clip(counts=(ROWS - TESTED - 4, 4, TESTED))
    assert _shown(settings, "train", "val") == set(range(ROWS)) - LAST


def test_prepare_writes_pairs_and_queries_that_the_check_leaves(con_clip: Make, tmp_path: Path) -> None:
    settings = con_clip(heldout_testsets_dir=str(tmp_path))
    guard = prepare.Guard.of(settings.prepare)
    assert len(list(guard.clean(find_source("cc_neg").pairs(settings)))) == 32
    assert {"cc_neg", "cc_neg_semclip"} <= set(guard.counts().checked)
    assert not guard.dropped
    tested = [pair["caption"] for pair in prepared(con_clip(), tmp_path)["test"]]
    assert [query["text"] for query in caption_queries(tmp_path)] == tested
    assert {int(caption.split()[1]) for caption in tested} == LAST


def test_missing_and_incomplete_files_are_named(con_clip: Make, tmp_path: Path) -> None:
    settings, folder = con_clip(), tmp_path / "cc_neg"
    (folder / cc_neg.IMAGES / f"{ROWS - 1:09d}.jpg").unlink()
    assert_refused(settings, r"000000059\.jpg is missing: put all images of CC-Neg there")
    # Its last rows are not those of the published test.
    pq.write_table(pq.read_table(folder / cc_neg.TABLE).slice(0, 30), folder / cc_neg.TABLE)
    assert_refused(settings, r"cc_neg\.parquet has 30 of 60 rows, .* convert all of it")
    (folder / cc_neg.TABLE).unlink()
    assert_refused(settings, r"cc_neg\.parquet is not a Parquet file")
    assert_refused(con_clip(folder=None), r"'cc_neg' needs prepare\.folder")
