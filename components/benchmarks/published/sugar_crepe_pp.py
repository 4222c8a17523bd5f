"""SugarCrepe++: two captions that say the same must both beat one that says something else (Dumpala et al. 2024).

SemCLIP's four numbers come twice. `sugar_crepe_pp_semclip` scores all rows of the authors' five files.
`sugar_crepe_pp_semclip_released` is what SemCLIP's released code scores, and so what its table 1 shows: its own file
`sugarcrepe_pp_paraphrased.csv`, of whose 4,757 rows the shuffle of seed 42 puts 475 last, and images that are squashed
and have ImageNet's mean. As a second row of an image
counts as a miss, the fewer rows make the higher top-1: no encoder can pass 32.4 over all rows, and 84.4 over the 475.
"""

from __future__ import annotations

from typing import Any

from components.benchmarks.benchmark import Benchmark, Need, Tested
from components.benchmarks.encoding.picture_source import picture_file
from components.benchmarks.encoding.preparation import SQUASHED
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.files.rows import checked, read_csv, read_rows
from components.benchmarks.protocols.row_pairs import group_numbers
from components.benchmarks.protocols.semclip_scores import held_out, semclip_scores
from components.benchmarks.protocols.triplets import image_triplets, text_triplets
from components.benchmarks.scores import Metric, Scores
from components.core.errors import InputError
from components.core.metrics import Features, Indices, Reals

SUBSETS = {"swap_obj": 245, "swap_att": 666, "replace_obj": 1652, "replace_att": 788, "replace_rel": 1406}
"""Subset -> published number of rows, in the order of the paper's tables."""
TEXT, IMAGES, SEMCLIP = "sugar_crepe_pp_text", "sugar_crepe_pp", "sugar_crepe_pp_semclip"
SEMCLIP_RELEASED, CSV = "sugar_crepe_pp_semclip_released", "sugarcrepe_pp_paraphrased.csv"
ROWS = sum(SUBSETS.values())
_COLUMNS = {"filename": str, "caption": str, "caption2": str, "negative_caption": str}
_CSV_COLUMNS = {"filename": str, "caption": str, "paraphrased": str, "negation": str}
_TIE = "a tie is a failure"


def _rows(context: PublishedContext, subset: str) -> list[dict[str, Any]]:
    rows = read_rows(context, f"{subset}.json", _COLUMNS)
    context.expect(f"{subset}.json", len(rows), SUBSETS[subset])
    return rows


def _texts(context: PublishedContext, rows: list[dict[str, Any]]) -> tuple[Features, Features, Features]:
    first, second, negative = (
        context.texts([row[column] for row in rows]) for column in ("caption", "caption2", "negative_caption")
    )
    return first, second, negative


def _pictures(rows: list[dict[str, Any]]) -> Indices:
    """Number of each row's picture `[rows]`."""
    return group_numbers([row["filename"] for row in rows])


def score_text(context: PublishedContext) -> Scores:
    """TOT: the two captions are closer to each other than each is to the negative one (section 4)."""
    values: dict[str, Reals] = {}
    pictures: dict[str, Indices] = {}
    for subset in SUBSETS:
        rows = _rows(context, subset)
        values[f"{TEXT}/{subset}/tot"] = text_triplets(*_texts(context, rows))
        pictures[f"{TEXT}/{subset}/tot"] = _pictures(rows)
    return Scores(values, pictures=pictures)


def score_images(context: PublishedContext) -> Scores:
    """ITT: both captions are closer to the image than the negative one; and each caption's own part of it."""
    values: dict[str, Reals] = {}
    pictures: dict[str, Indices] = {}
    for subset in SUBSETS:
        rows = _rows(context, subset)
        images = context.images([picture_file(context.folder / "images" / row["filename"]) for row in rows])
        parts = image_triplets(images, *_texts(context, rows))
        values |= {f"{IMAGES}/{subset}/{name}": found for name, found in parts.items()}
        pictures |= {f"{IMAGES}/{subset}/{name}": _pictures(rows) for name in parts}
    return Scores(values, pictures=pictures)


def score_semclip(context: PublishedContext) -> Scores:
    """SemCLIP's four numbers over all rows (its section 4, equation 8)."""
    rows = [row for subset in SUBSETS for row in _rows(context, subset)]
    images = context.images([picture_file(context.folder / "images" / row["filename"]) for row in rows])
    original, paraphrased, negated = _texts(context, rows)
    return semclip_scores(SEMCLIP, images, original, paraphrased, negated, _pictures(rows))


def score_semclip_released(context: PublishedContext) -> Scores:
    """The same over the rows that the released code tests.

    Raises:
        InputError: the file is damaged, or has too few rows or others than published.
    """
    rows, tested_rows = semclip_rows(context)
    context.expect(CSV, len(rows), ROWS)
    if not tested_rows:
        raise InputError(f"{context.folder / CSV} has {len(rows)} rows, of which a tenth is tested: fetch all of it")
    images = context.images(
        [picture_file(context.folder / "images" / row["filename"]) for row in tested_rows], SQUASHED
    )
    original, paraphrased, negated = (
        context.texts([row[column] for row in tested_rows]) for column in ("caption", "paraphrased", "negation")
    )
    return semclip_scores(SEMCLIP_RELEASED, images, original, paraphrased, negated, _pictures(tested_rows))


def tested_semclip_released(context: PublishedContext) -> Tested:
    """The held-out tenth of SemCLIP's file: captions, paraphrases, negations and images."""
    _, rows = semclip_rows(context)
    texts = [row[column] for row in rows for column in ("caption", "paraphrased", "negation")]
    return Tested(texts, [context.folder / "images" / row["filename"] for row in rows], names="val2017")


def semclip_rows(context: PublishedContext) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All rows of SemCLIP's file in its order, and those that are tested.

    Raises:
        InputError: the file is missing or damaged, or rows lack a column.
    """
    rows = checked(context, CSV, read_csv(context.folder / CSV), _CSV_COLUMNS)
    return rows, [rows[number] for number in held_out(len(rows))]


def tested(context: PublishedContext) -> Tested:
    """All three captions of all subsets, and their images, which are COCO's."""
    rows = [row for subset in SUBSETS for row in read_rows(context, f"{subset}.json", _COLUMNS)]
    texts = [row[column] for row in rows for column in ("caption", "caption2", "negative_caption")]
    return Tested(texts, [context.folder / "images" / row["filename"] for row in rows], names="val2017")


_FILES = tuple(
    Need(f"{subset}.json", f"{count:,} rows", "under 1 MB", "CC BY 4.0", "github.com/Sri-Harsha/scpp, data/")
    for subset, count in SUBSETS.items()
)
_IMAGES = Need(
    "images",
    "COCO val2017, 5,000 images",
    "1 GB",
    "Flickr terms, annotations CC BY 4.0",
    "cocodataset.org, val2017.zip",
)
_SEMCLIP_METRICS = (
    Metric("recall_at_k", higher_is_better=True, ties="the image of the earlier row first"),
    Metric("original_over_negation", higher_is_better=True, ties=_TIE),
    Metric("composite_score", higher_is_better=True, ties="as in its parts"),
)

BENCHMARKS = (
    Benchmark(
        name=TEXT,
        version=2,
        protocol="released code: strict inequalities, each subset by itself",
        citation="SugarCrepe++ (arXiv 2406.11171)",
        folder="sugar_crepe_pp",
        needs=_FILES,
        metrics=(Metric("tot", higher_is_better=True, ties=_TIE),),
        score=score_text,
        text_only=True,
        tested=tested,
    ),
    Benchmark(
        name=IMAGES,
        version=2,
        protocol="released code: strict inequalities, each subset by itself",
        citation="SugarCrepe++ (arXiv 2406.11171)",
        folder="sugar_crepe_pp",
        needs=(*_FILES, _IMAGES),
        metrics=(
            Metric("itt", higher_is_better=True, ties=_TIE),
            Metric("i_p1_n", higher_is_better=True, ties=_TIE),
            Metric("i_p2_n", higher_is_better=True, ties=_TIE),
        ),
        score=score_images,
    ),
    Benchmark(
        name=SEMCLIP,
        version=2,
        protocol="SemCLIP, all rows pooled: the negative caption stands for the negation; composite of equation 8",
        citation="SemCLIP (arXiv 2511.16527)",
        folder="sugar_crepe_pp",
        needs=(*_FILES, _IMAGES),
        metrics=_SEMCLIP_METRICS,
        score=score_semclip,
    ),
    Benchmark(
        name=SEMCLIP_RELEASED,
        version=1,
        protocol="SemCLIP's released code: a tenth of its file's rows by seed 42, squashed images; equation 8",
        citation="SemCLIP (arXiv 2511.16527)",
        folder="sugar_crepe_pp",
        needs=(Need(CSV, f"{ROWS:,} rows", "1 MB", "BSD-3 code, data CC BY 4.0", "the authors of SemCLIP"), _IMAGES),
        metrics=_SEMCLIP_METRICS,
        score=score_semclip_released,
        tested=tested_semclip_released,
    ),
)
