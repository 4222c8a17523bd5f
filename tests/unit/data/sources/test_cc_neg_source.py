"""CC-Neg's published tests are kept out of training by image, whatever the seed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.settings import Settings
from components.data import prepare
from components.data.sources import find_source
from components.data.test_sets.readers import cc_neg
from tests.unit.data.sources.reading import assert_refused, caption_queries, pairs_of, prepare_settings, prepared

ROWS, TESTED = 40, 8
LAST = {f"{number:09d}.jpg" for number in range(ROWS - TESTED, ROWS)}
TENTH = {f"{number:09d}.jpg" for number in np.random.RandomState(42).permutation(ROWS)[ROWS - ROWS // 10 :]}
"""What SemCLIP's released code tests on: the last tenth of a shuffle by seed 42."""


@pytest.fixture
def world(
    tmp_path: Path, raw_params: dict[str, Any], png: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Settings]:
    """Writes a CC-Neg of 40 rows, of which the last eight are tested; returns settings that name it."""
    monkeypatch.setattr(cc_neg, "ROWS", ROWS)
    monkeypatch.setattr(cc_neg, "TESTED", TESTED)
    folder = tmp_path / "cc_neg"
    (folder / cc_neg.IMAGES).mkdir(parents=True)
    names = [f"{number:09d}.jpg" for number in range(ROWS)]
    for number, name in enumerate(names):
        (folder / cc_neg.IMAGES / name).write_bytes(png((number, 1, 2)))
    captions = [f"thing {number}" for number in range(ROWS)]
    columns = {"image_path": names, "caption": captions, "negated": [f"no {caption}" for caption in captions]}
    pq.write_table(pa.table(columns), folder / cc_neg.TABLE)
    lines = [f"{number},thing {number},no thing {number},stuff {number}" for number in range(ROWS)]
    (folder / cc_neg.CSV).write_text("\n".join(["image_number,caption,negation,paraphrased", *lines]))

    def make(seed: int = 0, counts: tuple[int, int, int] = (20, 4, 8), **changes: Any) -> Settings:
        raw_params["dataset"]["seed"] = seed
        wanted = dict(zip(("train", "val", "test"), counts, strict=True))
        return prepare_settings(raw_params, **{"source": "cc_neg", "folder": str(folder), "counts": wanted} | changes)

    return make


def _images(settings: Settings) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {"train": set(), "val": set(), "test": set()}
    for pair in pairs_of(settings):
        found[pair.split].add(Path(pair.name).name)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_images_that_either_protocol_tests_do_not_train(world: Any, seed: int) -> None:
    found = _images(world(seed))
    assert (found["train"] | found["val"]).isdisjoint(LAST | TENTH)
    assert found["test"] == LAST
    assert (len(found["train"]), len(found["val"])) == (20, 4)
    assert found["train"].isdisjoint(found["val"])


def test_all_that_is_left_can_train(world: Any) -> None:
    left = ROWS - len(LAST | TENTH)
    found = _images(world(counts=(left - 2, 2, 8)))
    assert found["train"] | found["val"] == {f"{number:09d}.jpg" for number in range(ROWS)} - LAST - TENTH
    assert_refused(world(counts=(left - 1, 2, 8)), rf"{left} images are in no published test: lower them")


def test_without_semclips_file_the_last_rows_alone_are_known(world: Any, tmp_path: Path) -> None:
    settings = world(counts=(ROWS - TESTED - 4, 4, 8))
    (tmp_path / "cc_neg" / cc_neg.CSV).unlink()
    found = _images(settings)
    assert (found["train"] | found["val"]).isdisjoint(LAST)
    assert len(found["train"] | found["val"]) == ROWS - TESTED


def test_stage_prepare_writes_pairs_and_queries(world: Any, tmp_path: Path) -> None:
    tested = [pair["caption"] for pair in prepared(world(), tmp_path)["test"]]
    assert [query["text"] for query in caption_queries(tmp_path)] == tested
    assert {f"{int(caption.split()[1]):09d}.jpg" for caption in tested} == LAST


def test_the_general_check_finds_nothing_left_to_drop(world: Any, tmp_path: Path) -> None:
    settings = world(heldout_testsets_dir=str(tmp_path))
    guard = prepare.Guard.of(settings.prepare)
    assert len(list(guard.clean(find_source("cc_neg").pairs(settings)))) == 32
    assert guard.counts().checked == ["cc_neg", "cc_neg_semclip"]
    assert not guard.dropped


def test_missing_and_incomplete_files_are_named(world: Any, tmp_path: Path) -> None:
    settings, folder = world(), tmp_path / "cc_neg"
    (folder / cc_neg.IMAGES / "000000039.jpg").unlink()
    assert_refused(settings, r"000000039\.jpg is missing: put all images of CC-Neg there")
    # Its last rows are not those of the published test.
    pq.write_table(pq.read_table(folder / cc_neg.TABLE).slice(0, 30), folder / cc_neg.TABLE)
    assert_refused(settings, r"cc_neg\.parquet has 30 of 40 rows, .* convert all of it")
    (folder / cc_neg.TABLE).unlink()
    assert_refused(settings, r"cc_neg\.parquet is not a Parquet file")
    assert_refused(world(folder=None), r"'cc_neg' needs prepare\.folder")
