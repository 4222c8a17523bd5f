"""CC-Neg as its authors publish it: what its benchmarks test on never trains, by image.

`prepare.folder` is the folder of the benchmark `cc_neg`: `cc_neg.parquet` with all rows in the published order, and the
images. CoN-CLIP tests on the last 40,000 rows, SemCLIP on a random tenth of `ccneg_paraphrased.csv`. An image of either
is in no row to train or validate with; SemCLIP's are known where its file is there, too. Pairs to test with are drawn
from CoN-CLIP's 40,000.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from components.core.errors import InputError
from components.core.settings import Settings
from components.data.listed_images import look_at
from components.data.source import EvaluationTables, Pair, Source, caption_queries
from components.test_sets.files import TestSetFiles
from components.test_sets.readers import cc_neg

FILE = "cc_neg.parquet"
Rows = list[dict[str, Any]]


def _shared(settings: Settings) -> tuple[Path, dict[str, Rows]]:
    """The folder of the images, and split -> rows, no image in two splits.

    Raises:
        InputError: files are missing, damaged or not all of CC-Neg, or the splits want more than there is.
    """
    folder = settings.prepare.folder
    if folder is None:
        raise InputError("params.yaml: prepare.source 'cc_neg' needs prepare.folder: name the benchmark's folder there")
    rows = cc_neg.read_table(folder / cc_neg.TABLE)
    if len(rows) != cc_neg.ROWS:
        raise InputError(
            f"{folder / cc_neg.TABLE} has {len(rows):,} of {cc_neg.ROWS:,} rows, so its last {cc_neg.TESTED:,} are not "
            "the published test: convert all of it"
        )
    files, named = TestSetFiles(folder), {cc_neg.picture_name(row): row for row in rows}
    tested = {path.name for path in cc_neg.tested_con_clip(files).files}
    held_out = {path.name for path in cc_neg.tested_semclip(files).files} if (folder / cc_neg.CSV).exists() else set()
    rng, counts = random.Random(f"cc-neg-{settings.world.seed}"), settings.prepare.counts
    tests = _shuffled([named[name] for name in named if name in tested], rng)
    rest = _shuffled([named[name] for name in named if name not in tested | held_out], rng)
    if len(tests) < counts.test or len(rest) < counts.val + counts.train:
        raise InputError(
            f"prepare.counts wants {counts.test:,} images to test with and {counts.val + counts.train:,} others; the "
            f"published test of CC-Neg has {len(tests):,}, {len(rest):,} images are in no published test: lower them"
        )
    return folder / cc_neg.IMAGES, {
        "test": tests[: counts.test],
        "val": rest[: counts.val],
        "train": rest[counts.val : counts.val + counts.train],
    }


def _shuffled(rows: Rows, rng: random.Random) -> Rows:
    rng.shuffle(rows)
    return rows


def _pairs(settings: Settings) -> Iterator[Pair]:
    images, shared = _shared(settings)
    for split, rows in shared.items():
        paths = [images / Path(row["image_path"]).name for row in rows]
        if missing := next((path for path in paths if not path.is_file()), None):
            raise InputError(f"{missing} is missing: put all images of CC-Neg there")
        for row, seen in zip(rows, look_at(paths, settings.prepare), strict=True):
            yield Pair(split, seen, row["caption"].strip(), name=f"{images.name}/{seen.name}")


def _evaluation(_settings: Settings, test: list[Pair]) -> EvaluationTables:
    """The caption of each test image as a query."""
    return caption_queries((pair.image_id, pair.caption) for pair in test)


SOURCE = Source(
    pairs=_pairs,
    evaluation=_evaluation,
    file=FILE,
    how="make it with `python -m components.experiments.parts.convert_cc_neg`",
)
