"""CC-Neg: does an image prefer its caption to the same caption negated? Two protocols that share the images.

`cc_neg` is that of CoN-CLIP (Singh et al. 2025; github.com/jaisidhsingh/CoN-CLIP): the last 40,000 rows by position,
commas taken out of the negated caption alone, `argmax` over [true, negated], so that a tie is right. Its annotations,
`ccneg_preprocessed.pt`, are a pickle, which nothing here opens:
`python -m components.benchmarks.files.convert_cc_neg` makes `cc_neg.parquet` of it, rows in the same order,
columns image_path, caption and negated.

`cc_neg_semclip` is that of SemCLIP (arXiv 2511.16527): `ccneg_paraphrased.csv` with columns image_number, caption,
negation and paraphrased, a random tenth held out. How it is drawn only the released code says, see `held_out`. The
paper counts 22,825 held-out rows of 228,246; the code's rule gives 22,824, so a file that fits either number is taken
as published. Its images are squashed and have ImageNet's mean, as in training. Values of the two protocols are not
comparable.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from components.benchmarks.benchmark import Benchmark, Need, Tested
from components.benchmarks.encoding.pictures import SQUASHED
from components.benchmarks.encoding.published_context import PublishedContext, checked, read_csv
from components.benchmarks.protocols.choices import (
    SEMCLIP_METRICS,
    at_least,
    group_numbers,
    held_out,
    row_cosine,
    semclip_scores,
)
from components.benchmarks.scores import Scores, metrics
from components.core.errors import InputError

CON_CLIP, SEMCLIP = "cc_neg", "cc_neg_semclip"
TABLE, CSV = "cc_neg.parquet", "ccneg_paraphrased.csv"
IMAGES = "ccneg_images/cc3m_subset_images_extracted_final"
ROWS, TESTED, HELD_OUT = 228_246, 40_000, 22_825
_TABLE_COLUMNS = {"image_path": str, "caption": str, "negated": str}
_CSV_COLUMNS = {"image_number": str, "caption": str, "negation": str, "paraphrased": str}


def score_con_clip(context: PublishedContext) -> Scores:
    """Share of images at least as close to the caption as to the negated one."""
    rows = read_table(context.folder / TABLE)
    context.expect(TABLE, len(rows), ROWS)
    tested = _tested_rows(context, rows)
    images = context.image_files(IMAGES, map(picture_name, tested))
    (true,) = context.columns(tested, "caption")
    negated = context.texts([row["negated"].replace(",", "") for row in tested])
    return Scores({f"{CON_CLIP}/accuracy": at_least(row_cosine(images, true), row_cosine(images, negated))})


def score_semclip(context: PublishedContext) -> Scores:
    """Top-1 of originals and paraphrases, originals over negations, and their composite."""
    rows, tested = semclip_rows(context)
    if not tested:
        raise InputError(f"{context.folder / CSV} has {len(rows)} rows, of which a tenth is tested: fetch all of it")
    if len(rows) != ROWS and len(tested) != HELD_OUT:
        context.expect(CSV, len(rows), ROWS)
    files = [semclip_picture_name(row) for row in tested]
    images = context.image_files(IMAGES, files, SQUASHED)
    texts = context.columns(tested, "caption", "paraphrased", "negation")
    return semclip_scores(SEMCLIP, group_numbers(files), images, *texts)


def tested_con_clip(context: PublishedContext) -> Tested:
    """The last 40,000 rows: captions, negated captions and images."""
    rows = _tested_rows(context, read_table(context.folder / TABLE))
    texts = [row[column] for row in rows for column in ("caption", "negated")]
    return Tested(texts, [context.folder / IMAGES / picture_name(row) for row in rows])


def tested_semclip(context: PublishedContext) -> Tested:
    """The held-out tenth: captions, negations, paraphrases and images."""
    _, rows = semclip_rows(context)
    texts = [row[column] for row in rows for column in ("caption", "negation", "paraphrased")]
    return Tested(texts, [context.folder / IMAGES / semclip_picture_name(row) for row in rows])


def picture_name(row: Mapping[str, Any]) -> str:
    """File name of the image of a row of `cc_neg.parquet`."""
    return PurePosixPath(row["image_path"]).name


def semclip_picture_name(row: Mapping[str, Any]) -> str:
    """File name of the image of a row of `ccneg_paraphrased.csv`."""
    return f"{row['image_number'].zfill(9)}.jpg"


def _tested_rows(context: PublishedContext, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return checked(context, f"{TABLE}, its last {TESTED:,} rows", rows[-TESTED:], _TABLE_COLUMNS)


def semclip_rows(context: PublishedContext) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All rows of SemCLIP's file in its order, and those that are tested.

    Raises:
        InputError: the file is missing or damaged, or rows lack a column.
    """
    rows = checked(context, CSV, read_csv(context.folder / CSV), _CSV_COLUMNS)
    return rows, [rows[number] for number in held_out(len(rows))]


def read_table(path: Path) -> list[dict[str, Any]]:
    """The rows of `cc_neg.parquet` in the published order.

    Raises:
        InputError: the file is missing or damaged, or lacks a column.
    """
    try:
        absent = [column for column in _TABLE_COLUMNS if column not in pq.read_schema(path).names]
        if absent:
            raise InputError(
                f"{path} lacks the column '{absent[0]}': make it with components.benchmarks.files.convert_cc_neg"
            )
        rows: list[dict[str, Any]] = pq.read_table(path, columns=list(_TABLE_COLUMNS)).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is no Parquet file ({str(error).splitlines()[0][:120]}): convert it again") from None
    return rows


_SOURCE = "github.com/jaisidhsingh/CoN-CLIP, data/"
_MADE = f"{ROWS:,} rows of ccneg_preprocessed.pt, made by components.benchmarks.files.convert_cc_neg"
_PICTURES = Need(IMAGES, "images of CC3M, one per row", "7 GB", "Google's CC3M terms", _SOURCE)

BENCHMARKS = (
    Benchmark(
        name=CON_CLIP,
        version=1,
        protocol="CoN-CLIP's released code: last 40,000 rows, no commas in the negated caption, ties right",
        citation='Learning the power of "no" (arXiv 2403.20312)',
        folder="cc_neg",
        needs=(Need(TABLE, _MADE, "20 MB", "MIT", _SOURCE), _PICTURES),
        metrics=metrics("a tie is right", "accuracy"),
        score=score_con_clip,
        tested=tested_con_clip,
    ),
    Benchmark(
        name=SEMCLIP,
        version=3,
        protocol="SemCLIP's released code: a tenth of the rows by seed 42, squashed images; composite of equation 8",
        citation="SemCLIP (arXiv 2511.16527)",
        folder="cc_neg",
        needs=(
            Need(CSV, f"{ROWS:,} rows", "60 MB", "BSD-3 code, data not stated", "the authors of SemCLIP"),
            _PICTURES,
        ),
        metrics=SEMCLIP_METRICS,
        score=score_semclip,
        tested=tested_semclip,
    ),
)
