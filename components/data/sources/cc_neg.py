"""CC-Neg as its authors publish it, in the folder of the benchmark `cc_neg`.

CoN-CLIP tests on the last 40,000 rows, SemCLIP on a random tenth of `ccneg_paraphrased.csv`. Test images of either are
not used for training or validation; SemCLIP's only if its file is there. Test pairs are drawn from CoN-CLIP's.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.data.listed_images import checked_files, image_folder
from components.data.source import Pair, Source, pairs_as_queries
from components.data.test_sets.files import TestSetFiles
from components.data.test_sets.readers import cc_neg

FILE = "cc_neg.parquet"
Rows = list[dict[str, Any]]


def _shared(settings: Settings) -> tuple[Path, dict[str, Rows]]:
    """The folder of the images, and split -> rows, without an image in two splits."""
    folder = image_folder(settings.prepare)
    rows = cc_neg.read_table(folder / cc_neg.TABLE)
    if len(rows) != cc_neg.ROWS:
        raise InputError(
            f"{folder / cc_neg.TABLE} has {len(rows):,} of {cc_neg.ROWS:,} rows, so its last {cc_neg.TESTED:,} are not "
            "the published test: convert all of it"
        )
    files, named = TestSetFiles(folder), {cc_neg.picture_name(row): row for row in rows}
    tested = {path.name for path in cc_neg.tested_con_clip(files).files}
    held_out = {path.name for path in cc_neg.tested_semclip(files).files} if (folder / cc_neg.CSV).exists() else set()
    rng, counts = random.Random(f"cc-neg-{settings.dataset.seed}"), settings.prepare.counts
    tests = _shuffled([named[name] for name in named if name in tested], rng)
    rest = _shuffled([named[name] for name in named if name not in tested | held_out], rng)
    if len(tests) < counts.test or len(rest) < counts.val + counts.train:
        raise InputError(
            f"prepare.counts requires {counts.test:,} test images and {counts.val + counts.train:,} others; the "
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
        samples = checked_files(paths, settings.prepare, "put all images of CC-Neg there")
        for row, path, sample in zip(rows, paths, samples, strict=True):
            yield Pair(split, sample, row["caption"].strip(), name=f"{images.name}/{path.name}")


SOURCE = Source(
    pairs=_pairs,
    evaluation=pairs_as_queries,
    file=FILE,
    how="make it with `python -m components.evaluation.benchmarks.published.cc_neg`",
)
