"""SugarCrepe++: two captions that say the same must both beat one that says something else (Dumpala et al. 2024)."""

from __future__ import annotations

from typing import Any

from components.benchmarks.benchmark import Metric, Scores
from components.benchmarks.encoding.context import BenchmarkContext
from components.benchmarks.encoding.picture_source import picture_file
from components.benchmarks.files.rows import read_rows
from components.benchmarks.protocols.row_pairs import group_numbers
from components.benchmarks.protocols.semclip_scores import semclip_scores
from components.benchmarks.protocols.triplets import image_triplets, text_triplets
from components.benchmarks.published_benchmark import Need, Published, Tested
from components.core.metrics import Features, Indices, Reals

SUBSETS = {"swap_obj": 245, "swap_att": 666, "replace_obj": 1652, "replace_att": 788, "replace_rel": 1406}
"""Subset -> published number of rows, in the order of the paper's tables."""
TEXT, IMAGES, SEMCLIP = "sugar_crepe_pp_text", "sugar_crepe_pp", "sugar_crepe_pp_semclip"
_COLUMNS = {"filename": str, "caption": str, "caption2": str, "negative_caption": str}
_TIE = "a tie is a failure"


def _rows(context: BenchmarkContext, subset: str) -> list[dict[str, Any]]:
    rows = read_rows(context, f"{subset}.json", _COLUMNS)
    context.expect(f"{subset}.json", len(rows), SUBSETS[subset])
    return rows


def _texts(context: BenchmarkContext, rows: list[dict[str, Any]]) -> tuple[Features, Features, Features]:
    first, second, negative = (
        context.texts([row[column] for row in rows]) for column in ("caption", "caption2", "negative_caption")
    )
    return first, second, negative


def _pictures(rows: list[dict[str, Any]]) -> Indices:
    """Number of each row's picture `[rows]`."""
    return group_numbers([row["filename"] for row in rows])


def score_text(context: BenchmarkContext) -> Scores:
    """TOT: the two captions are closer to each other than each is to the negative one (section 4)."""
    values: dict[str, Reals] = {}
    pictures: dict[str, Indices] = {}
    for subset in SUBSETS:
        rows = _rows(context, subset)
        values[f"{TEXT}/{subset}/tot"] = text_triplets(*_texts(context, rows))
        pictures[f"{TEXT}/{subset}/tot"] = _pictures(rows)
    return Scores(values, pictures=pictures)


def score_images(context: BenchmarkContext) -> Scores:
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


def score_semclip(context: BenchmarkContext) -> Scores:
    """SemCLIP's four numbers over all rows (its section 4, equation 8); which it holds out, it does not say."""
    rows = [row for subset in SUBSETS for row in _rows(context, subset)]
    images = context.images([picture_file(context.folder / "images" / row["filename"]) for row in rows])
    original, paraphrased, negated = _texts(context, rows)
    return semclip_scores(SEMCLIP, images, original, paraphrased, negated, _pictures(rows))


def tested(context: BenchmarkContext) -> Tested:
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

BENCHMARKS = (
    Published(
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
    Published(
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
    Published(
        name=SEMCLIP,
        version=2,
        protocol="SemCLIP, all rows pooled: the negative caption stands for the negation; composite of equation 8",
        citation="SemCLIP (arXiv 2511.16527)",
        folder="sugar_crepe_pp",
        needs=(*_FILES, _IMAGES),
        metrics=(
            Metric("recall_at_k", higher_is_better=True, ties="the image of the earlier row first"),
            Metric("original_over_negation", higher_is_better=True, ties=_TIE),
            Metric("composite_score", higher_is_better=True, ties="as in its parts"),
        ),
        score=score_semclip,
    ),
)
