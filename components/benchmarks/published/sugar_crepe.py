"""SugarCrepe and SugarCrepe++: an image must be closer to what describes it than to a fluent sentence that does not.

`sugar_crepe` (Hsieh et al. 2023; github.com/RAIVNLab/sugar-crepe) has seven files, each an object whose keys are row
numbers with gaps, and a strict inequality for each row. The paper reports every subset and discusses them by type; the
mean of a type's subsets, each counted once, is what later papers quote, and so it stands beside them as `replace`,
`swap` and `add`. There is no official average of all. (CLIP_benchmark counts ties as right instead.)

`sugar_crepe_pp` (Dumpala et al. 2024; github.com/Sri-Harsha/scpp): two captions that say the same must both beat one
that says something else. SemCLIP's four numbers come twice. `sugar_crepe_pp_semclip` scores all rows of the authors'
five files. `sugar_crepe_pp_semclip_released` is what SemCLIP's released code scores, and so what its table 1 shows: its
own file `sugarcrepe_pp_paraphrased.csv`, of whose 4,757 rows the shuffle of seed 42 puts 475 last, and images that are
squashed and have ImageNet's mean. As a second row of an image counts as a miss, the fewer rows make the higher top-1:
no encoder can pass 32.4 over all rows, and 84.4 over the 475.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from components.benchmarks.benchmark import Benchmark, Need, Tested
from components.benchmarks.encoding.pictures import SQUASHED
from components.benchmarks.encoding.published_context import PublishedContext, checked, read_csv, read_rows
from components.benchmarks.protocols.choices import (
    SEMCLIP_METRICS,
    group_numbers,
    held_out,
    image_triplets,
    row_cosine,
    semclip_scores,
    text_triplets,
)
from components.benchmarks.scores import Scores, grouped, metrics
from components.core.errors import InputError
from components.core.metrics import strictly_greater

NAME = "sugar_crepe"
TYPES = {
    "replace": {"replace_obj": 1652, "replace_att": 788, "replace_rel": 1406},
    "swap": {"swap_obj": 245, "swap_att": 666},
    "add": {"add_obj": 2062, "add_att": 692},
}
"""Type -> its subsets -> published number of rows of SugarCrepe."""
SUBSETS = {"swap_obj": 245, "swap_att": 666, "replace_obj": 1652, "replace_att": 788, "replace_rel": 1406}
"""Subset -> published number of rows of SugarCrepe++, in the order of the paper's tables."""
TEXT, IMAGES, SEMCLIP = "sugar_crepe_pp_text", "sugar_crepe_pp", "sugar_crepe_pp_semclip"
SEMCLIP_RELEASED, CSV = "sugar_crepe_pp_semclip_released", "sugarcrepe_pp_paraphrased.csv"
ROWS = sum(SUBSETS.values())
_PAIR, _TRIPLET = ("caption", "negative_caption"), ("caption", "caption2", "negative_caption")
_CSV_COLUMNS = ("caption", "paraphrased", "negation")
_TIE = "a tie is a failure"


def _rows(
    context: PublishedContext, subset: str, columns: Sequence[str], count: int | None = None
) -> list[dict[str, Any]]:
    """The rows of a subset's file, `count` of which are published."""
    rows = read_rows(context, f"{subset}.json", dict.fromkeys(("filename", *columns), str))
    if count is not None:
        context.expect(f"{subset}.json", len(rows), count)
    return rows


def _files(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["filename"] for row in rows]


def score(context: PublishedContext) -> Scores:
    """Accuracy of each subset, and of each type as the mean of its subsets."""
    scores = Scores({})
    for kind, subsets in TYPES.items():
        found, files = [], []
        for subset, count in subsets.items():
            rows = _rows(context, subset, _PAIR, count)
            images = context.image_files("images", _files(rows))
            caption, negative = context.columns(rows, *_PAIR)
            found.append(strictly_greater(row_cosine(images, caption), row_cosine(images, negative)))
            files += _files(rows)
            scores.update(grouped(f"{NAME}/{subset}", {"accuracy": found[-1]}, group_numbers(_files(rows))))
        name = f"{NAME}/{kind}/accuracy"
        strata = np.repeat(np.arange(len(found)), [len(right) for right in found])
        scores.update(Scores({name: np.concatenate(found)}, {name: strata}, pictures={name: group_numbers(files)}))
    return scores


def score_text(context: PublishedContext) -> Scores:
    """TOT: the two captions are closer to each other than each is to the negative one (section 4)."""
    scores = Scores({})
    for subset, count in SUBSETS.items():
        rows = _rows(context, subset, _TRIPLET, count)
        found = {"tot": text_triplets(*context.columns(rows, *_TRIPLET))}
        scores.update(grouped(f"{TEXT}/{subset}", found, group_numbers(_files(rows))))
    return scores


def score_images(context: PublishedContext) -> Scores:
    """ITT: both captions are closer to the image than the negative one; and each caption's own part of it."""
    scores = Scores({})
    for subset, count in SUBSETS.items():
        rows = _rows(context, subset, _TRIPLET, count)
        images = context.image_files("images", _files(rows))
        parts = image_triplets(images, *context.columns(rows, *_TRIPLET))
        scores.update(grouped(f"{IMAGES}/{subset}", parts, group_numbers(_files(rows))))
    return scores


def score_semclip(context: PublishedContext) -> Scores:
    """SemCLIP's four numbers over all rows (its section 4, equation 8)."""
    rows = [row for subset, count in SUBSETS.items() for row in _rows(context, subset, _TRIPLET, count)]
    images = context.image_files("images", _files(rows))
    return semclip_scores(SEMCLIP, group_numbers(_files(rows)), images, *context.columns(rows, *_TRIPLET))


def score_semclip_released(context: PublishedContext) -> Scores:
    """The same over the rows that the released code tests."""
    rows, held = semclip_rows(context)
    context.expect(CSV, len(rows), ROWS)
    if not held:
        raise InputError(f"{context.folder / CSV} has {len(rows)} rows, of which a tenth is tested: fetch all of it")
    images = context.image_files("images", _files(held), SQUASHED)
    texts = context.columns(held, *_CSV_COLUMNS)
    return semclip_scores(SEMCLIP_RELEASED, group_numbers(_files(held)), images, *texts)


def semclip_rows(context: PublishedContext) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All rows of SemCLIP's file in its order, and those that are tested.

    Raises:
        InputError: the file is missing or damaged, or rows lack a column.
    """
    columns = dict.fromkeys(("filename", *_CSV_COLUMNS), str)
    rows = checked(context, CSV, read_csv(context.folder / CSV), columns)
    return rows, [rows[number] for number in held_out(len(rows))]


def tested(columns: Sequence[str], subsets: Sequence[str], context: PublishedContext) -> Tested:
    """The texts of all `columns` of the subsets, and their images, which are COCO's."""
    rows = [row for subset in subsets for row in _rows(context, subset, columns)]
    return _tested(context, columns, rows)


def tested_semclip_released(context: PublishedContext) -> Tested:
    """The held-out tenth of SemCLIP's file: captions, paraphrases, negations and images."""
    return _tested(context, _CSV_COLUMNS, semclip_rows(context)[1])


def _tested(context: PublishedContext, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> Tested:
    texts = [row[column] for row in rows for column in columns]
    return Tested(texts, [context.folder / "images" / name for name in _files(rows)], names="val2017")


_COUNTS = {subset: count for subsets in TYPES.values() for subset, count in subsets.items()}
_LICENCE = "Flickr terms, annotations CC BY 4.0"
_IMAGES = Need("images", "COCO val2017, 5,000 images", "1 GB", _LICENCE, "cocodataset.org, val2017.zip")


def _needs(counts: dict[str, int], licence: str, source: str) -> tuple[Need, ...]:
    return tuple(
        Need(f"{subset}.json", f"{count:,} rows", "under 1 MB", licence, source) for subset, count in counts.items()
    )


_FILES = _needs(SUBSETS, "CC BY 4.0", "github.com/Sri-Harsha/scpp, data/")
_OWN = partial(
    Benchmark[PublishedContext],
    version=2,
    protocol="released code: strict inequalities, each subset by itself",
    citation="SugarCrepe++ (arXiv 2406.11171)",
    folder="sugar_crepe_pp",
)
_OF_SEMCLIP = partial(
    Benchmark[PublishedContext],
    citation="SemCLIP (arXiv 2511.16527)",
    folder="sugar_crepe_pp",
    metrics=SEMCLIP_METRICS,
)

BENCHMARKS = (
    Benchmark(
        name=NAME,
        version=2,
        protocol="released code: strict inequality, each subset by itself; types are means of their subsets",
        citation="SugarCrepe (arXiv 2306.14610)",
        folder="sugar_crepe",
        needs=(*_needs(_COUNTS, "MIT", "github.com/RAIVNLab/sugar-crepe, data/"), _IMAGES),
        metrics=metrics(_TIE, "accuracy"),
        score=score,
        tested=partial(tested, _PAIR, list(_COUNTS)),
    ),
    _OWN(
        name=TEXT,
        needs=_FILES,
        metrics=metrics(_TIE, "tot"),
        score=score_text,
        text_only=True,
        tested=partial(tested, _TRIPLET, list(SUBSETS)),
    ),
    _OWN(name=IMAGES, needs=(*_FILES, _IMAGES), metrics=metrics(_TIE, "itt", "i_p1_n", "i_p2_n"), score=score_images),
    _OF_SEMCLIP(
        name=SEMCLIP,
        version=2,
        protocol="SemCLIP, all rows pooled: the negative caption stands for the negation; composite of equation 8",
        needs=(*_FILES, _IMAGES),
        score=score_semclip,
    ),
    _OF_SEMCLIP(
        name=SEMCLIP_RELEASED,
        version=1,
        protocol="SemCLIP's released code: a tenth of its file's rows by seed 42, squashed images; equation 8",
        needs=(Need(CSV, f"{ROWS:,} rows", "1 MB", "BSD-3 code, data CC BY 4.0", "the authors of SemCLIP"), _IMAGES),
        score=score_semclip_released,
        tested=tested_semclip_released,
    ),
)
