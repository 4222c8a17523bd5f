"""COCO-P and COCO-PE: does a paraphrase find the images that the query finds? (Cheng et al. 2024, section 3)

4,155 pairs by GPT-3 that people judged to mean the same (score 5 of 5). The galleries are COCO's 5,000 validation
images and, for COCO-PE, the 123,403 unlabeled ones as well; the paper does not name the release, but only that of 2017
has unlabeled images of that number. It reports AO@10 and JS@10. Neither the pairs' file nor code was found in public;
for the format that is read here see `components.benchmarks.files.coco_paraphrases.read_pairs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from components.benchmarks.benchmark import Benchmark, Need, Tested
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.files.coco_paraphrases import (
    FILE,
    IMAGES,
    PAIRS,
    UNLABELED,
    VALIDATION,
    gallery,
    gold_rows,
    picture_files,
    read_pairs,
)
from components.benchmarks.protocols.paraphrase_ranking import paraphrase_agreement
from components.benchmarks.scores import Metric, Scores

SMALL, LARGE = "coco_p", "coco_pe"
REPORTED = 10
"""The depth that the paper reports."""


def score(name: str, folders: Sequence[str], context: PublishedContext) -> Scores:
    """AO@k and JS@k between the lists of query and paraphrase, and recall@k of both."""
    pairs = read_pairs(context)
    names, images = gallery(context, folders)
    gold = gold_rows(pairs, names)
    depths = sorted({*context.ks, REPORTED})
    found = paraphrase_agreement(context.texts(pairs.queries), context.texts(pairs.paraphrases), images, gold, depths)
    values = {f"{name}/{metric}": column for metric, column in found.items()}
    return Scores(values, pictures=dict.fromkeys(values, gold))


def tested(context: PublishedContext) -> Tested:
    """Queries and paraphrases, and all images of the larger gallery that are there."""
    pairs = read_pairs(context)
    files = [
        path for name in IMAGES if (context.folder / name).is_dir() for path in picture_files(context.folder / name)
    ]
    return Tested([*pairs.queries, *pairs.paraphrases], files)


_TIES = "the earlier gallery row first, images sorted by name"
METRICS = tuple(
    Metric(name, higher_is_better=True, ties=_TIES)
    for name in ("ao_at_k", "js_at_k", "query_recall_at_k", "paraphrase_recall_at_k")
)
_CITATION = "Adapting dual-encoder vision-language models for paraphrased retrieval (arXiv 2405.03190)"
PAIRS_NEED = Need(FILE, f"{PAIRS:,} pairs in this project's format", "1 MB", "not stated", "the authors of COCO-P")
VALIDATION_NEED = Need(
    VALIDATION, f"COCO val2017, {IMAGES[VALIDATION]:,} images", "1 GB", "Flickr terms", "cocodataset.org"
)
_UNLABELED_NEED = Need(
    UNLABELED, f"COCO unlabeled2017, {IMAGES[UNLABELED]:,} images", "19 GB", "Flickr terms", "cocodataset.org"
)

BENCHMARKS = (
    Benchmark(
        name=SMALL,
        version=2,
        protocol="the paper's text: one paraphrase per caption, gallery of 5,000 images",
        citation=_CITATION,
        folder="coco_p",
        needs=(PAIRS_NEED, VALIDATION_NEED),
        metrics=METRICS,
        score=partial(score, SMALL, (VALIDATION,)),
        tested=tested,
    ),
    Benchmark(
        name=LARGE,
        version=2,
        protocol="the paper's text: one paraphrase per caption, gallery of 128,403 images",
        citation=_CITATION,
        folder="coco_p",
        needs=(PAIRS_NEED, VALIDATION_NEED, _UNLABELED_NEED),
        metrics=METRICS,
        score=partial(score, LARGE, (VALIDATION, UNLABELED)),
    ),
)
