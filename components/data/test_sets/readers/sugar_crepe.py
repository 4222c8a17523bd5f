"""SugarCrepe and SugarCrepe++: COCO images with captions and fluent false captions.

SemCLIP publishes its own file of SugarCrepe++, of whose 4,757 rows the released shuffle of seed 42 tests 475.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from components.core.tables.folders import RequiredFile
from components.data.test_sets.files import Tested, TestSet, TestSetFiles, released_test_rows

SUGAR_CREPE, TEXT = "sugar_crepe", "sugar_crepe_pp_text"
SEMCLIP_RELEASED, CSV = "sugar_crepe_pp_semclip_released", "sugarcrepe_pp_paraphrased.csv"
FOLDER, PP_FOLDER = "sugar_crepe", "sugar_crepe_pp"
TYPES = {
    "replace": {"replace_obj": 1652, "replace_att": 788, "replace_rel": 1406},
    "swap": {"swap_obj": 245, "swap_att": 666},
    "add": {"add_obj": 2062, "add_att": 692},
}
"""Type -> its subsets -> published number of rows of SugarCrepe."""
SUBSETS = {"swap_obj": 245, "swap_att": 666, "replace_obj": 1652, "replace_att": 788, "replace_rel": 1406}
"""Subset -> published number of rows of SugarCrepe++, in the order of the paper's tables."""
ROWS = sum(SUBSETS.values())
PAIR, TRIPLET = ("caption", "negative_caption"), ("caption", "caption2", "negative_caption")
CSV_COLUMNS = ("caption", "paraphrased", "negation")
_COUNTS = {subset: count for subsets in TYPES.values() for subset, count in subsets.items()}


def _files(counts: dict[str, int], licence: str, source: str) -> tuple[RequiredFile, ...]:
    return tuple(
        RequiredFile(f"{subset}.json", f"{count:,} rows", "under 1 MB", licence, source)
        for subset, count in counts.items()
    )


IMAGES = RequiredFile(
    "images",
    "COCO val2017, 5,000 images",
    "1 GB",
    "Flickr terms, annotations CC BY 4.0",
    "cocodataset.org, val2017.zip",
)
FILES = (*_files(_COUNTS, "MIT", "github.com/RAIVNLab/sugar-crepe, data/"), IMAGES)
PP_FILES = _files(SUBSETS, "CC BY 4.0", "github.com/Sri-Harsha/scpp, data/")
CSV_FILES = (
    RequiredFile(CSV, f"{ROWS:,} rows", "1 MB", "BSD-3 code, data CC BY 4.0", "the authors of SemCLIP"),
    IMAGES,
)


def read_subset(
    files: TestSetFiles, subset: str, columns: Sequence[str], published: int | None = None
) -> list[dict[str, Any]]:
    """The rows of a subset's file with text columns `columns`."""
    rows = files.read_rows(f"{subset}.json", dict.fromkeys(("filename", *columns), str))
    if published is not None:
        files.expect(f"{subset}.json", len(rows), published)
    return rows


def semclip_rows(files: TestSetFiles) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All rows of SemCLIP's file in its order, and the test rows."""
    rows = files.read_csv(CSV, dict.fromkeys(("filename", *CSV_COLUMNS), str))
    return rows, [rows[number] for number in released_test_rows(len(rows))]


def picture_names(rows: Sequence[dict[str, Any]]) -> list[str]:
    """File names of the images of rows."""
    return [row["filename"] for row in rows]


def _tested(files: TestSetFiles, columns: Sequence[str], subsets: Sequence[str]) -> Tested:
    rows = [row for subset in subsets for row in read_subset(files, subset, columns)]
    return _tested_rows(files, columns, rows)


def _tested_rows(files: TestSetFiles, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> Tested:
    texts = [row[column] for row in rows for column in columns]
    return Tested(texts, [files.folder / "images" / name for name in picture_names(rows)], names="val2017")


TEST_SETS = (
    TestSet(SUGAR_CREPE, FOLDER, FILES, partial(_tested, columns=PAIR, subsets=list(_COUNTS))),
    TestSet(TEXT, PP_FOLDER, PP_FILES, partial(_tested, columns=TRIPLET, subsets=list(SUBSETS))),
    TestSet(
        SEMCLIP_RELEASED, PP_FOLDER, CSV_FILES, lambda files: _tested_rows(files, CSV_COLUMNS, semclip_rows(files)[1])
    ),
)
