"""CC-Neg: images of CC3M with a caption and its negation, in the files of CoN-CLIP and of SemCLIP.

CoN-CLIP's `ccneg_preprocessed.pt` is a pickle, which is never opened here:
`python -m components.evaluation.benchmarks.published.cc_neg` makes `cc_neg.parquet` of it, rows in the same order.
SemCLIP's paper counts 22,825 test rows of 228,246; its code's rule gives 22,824, so both numbers count as published.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow.parquet as pq

from components.core.system.errors import InputError
from components.core.tables.folders import RequiredFile
from components.core.tables.parquet_rows import DAMAGED
from components.data.test_sets.files import Tested, TestSet, TestSetFiles, released_test_rows

CON_CLIP, SEMCLIP = "cc_neg", "cc_neg_semclip"
FOLDER, TABLE, CSV = "cc_neg", "cc_neg.parquet", "ccneg_paraphrased.csv"
IMAGES = "ccneg_images/cc3m_subset_images_extracted_final"
ROWS, TESTED, HELD_OUT = 228_246, 40_000, 22_825
_TABLE_COLUMNS = {"image_path": str, "caption": str, "negated": str}
_CSV_COLUMNS = {"image_number": str, "caption": str, "negation": str, "paraphrased": str}
_CONVERT = "components.evaluation.benchmarks.published.cc_neg"
_SOURCE = "github.com/jaisidhsingh/CoN-CLIP, data/"
_PICTURES = RequiredFile(IMAGES, "images of CC3M, one per row", "7 GB", "Google's CC3M terms", _SOURCE)
CON_CLIP_FILES = (
    RequiredFile(TABLE, f"{ROWS:,} rows of ccneg_preprocessed.pt, made by {_CONVERT}", "20 MB", "MIT", _SOURCE),
    _PICTURES,
)
SEMCLIP_FILES = (
    RequiredFile(CSV, f"{ROWS:,} rows", "60 MB", "BSD-3 code, data not stated", "the authors of SemCLIP"),
    _PICTURES,
)


def read_table(path: Path) -> list[dict[str, Any]]:
    """The rows of `cc_neg.parquet` in the published order."""
    try:
        absent = [column for column in _TABLE_COLUMNS if column not in pq.read_schema(path).names]
        if absent:
            raise InputError(f"{path} lacks the column '{absent[0]}': make it with {_CONVERT}")
        rows: list[dict[str, Any]] = pq.read_table(path, columns=list(_TABLE_COLUMNS)).to_pylist()
    except DAMAGED as error:
        reason = str(error).splitlines()[0][:120]
        raise InputError(f"{path} is not a Parquet file ({reason}): convert it again") from None
    return rows


def con_clip_test_rows(files: TestSetFiles, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last 40,000 of all rows of `cc_neg.parquet`."""
    return files.complete_rows(f"{TABLE}, its last {TESTED:,} rows", rows[-TESTED:], _TABLE_COLUMNS)


def semclip_rows(files: TestSetFiles) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All rows of SemCLIP's file in its order, and the test rows."""
    rows = files.read_csv(CSV, _CSV_COLUMNS)
    return rows, [rows[number] for number in released_test_rows(len(rows))]


def picture_name(row: Mapping[str, Any]) -> str:
    """File name of the image of a row of `cc_neg.parquet`."""
    return PurePosixPath(row["image_path"]).name


def semclip_picture_name(row: Mapping[str, Any]) -> str:
    """File name of the image of a row of `ccneg_paraphrased.csv`."""
    return f"{row['image_number'].zfill(9)}.jpg"


def tested_con_clip(files: TestSetFiles) -> Tested:
    """Captions, negated captions and images of the last 40,000 rows."""
    rows = con_clip_test_rows(files, read_table(files.folder / TABLE))
    texts = [row[column] for row in rows for column in ("caption", "negated")]
    return Tested(texts, [files.folder / IMAGES / picture_name(row) for row in rows])


def tested_semclip(files: TestSetFiles) -> Tested:
    """Captions, negations, paraphrases and images of the test rows."""
    _, rows = semclip_rows(files)
    texts = [row[column] for row in rows for column in ("caption", "negation", "paraphrased")]
    return Tested(texts, [files.folder / IMAGES / semclip_picture_name(row) for row in rows])


TEST_SETS = (
    TestSet(CON_CLIP, FOLDER, CON_CLIP_FILES, tested_con_clip),
    TestSet(SEMCLIP, FOLDER, SEMCLIP_FILES, tested_semclip),
)
