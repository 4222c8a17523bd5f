"""Spot-the-Difference: find the pair of images that a sentence about their difference describes (Jhamtani 2018).

PC-CLIP's table 12 gives recall@5 and @10 of CLIP4IDC, a model with a fusion head trained on this data set. Here no
head is trained: a pair's feature is the difference that PC-CLIP trains on, image 2 less image 1, so figures are not
those of that table. As in CLIP4IDC, rows of one image id are one pair, every sentence is a query, and all pairs of the
test split are the gallery. Some sentences say that nothing has changed; no encoder can place them.
"""

from __future__ import annotations

import numpy as np

from components.benchmarks.benchmark import Benchmark, Tested
from components.benchmarks.encoding.picture_source import picture_file
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.files.spot_the_difference import (
    FOLDER,
    PICTURES,
    TEST_ROWS,
    picture_paths,
    read_pairs,
    split_need,
)
from components.benchmarks.protocols.difference import difference_features
from components.benchmarks.scores import Metric, Scores
from components.core.metrics import gold_ranks, hit_at_k

NAME = "spot_the_difference"


def score(context: PublishedContext) -> Scores:
    """Recall@k of image pairs, one query per sentence."""
    pairs = read_pairs(context, "test")
    paths = [picture_paths(context, image) for image in pairs]
    before, after = (np.asarray(context.images(list(map(picture_file, side)))) for side in zip(*paths, strict=True))
    sentences = [(sentence, row) for row, told in enumerate(pairs.values()) for sentence in told]
    queries = context.texts([sentence for sentence, _ in sentences])
    gold = np.array([row for _, row in sentences], dtype=np.int64)
    ranks = gold_ranks(queries, difference_features(after, before), gold, ties="pessimistic")
    values = {f"{NAME}/recall_at_{k}": hit_at_k(ranks, k) for k in context.ks}
    return Scores(values, pictures=dict.fromkeys(values, gold))


def tested(context: PublishedContext) -> Tested:
    """All sentences, and both images of each pair."""
    pairs = read_pairs(context, "test")
    files = [path for image in pairs for path in picture_paths(context, image)]
    return Tested([sentence for told in pairs.values() for sentence in told], files)


BENCHMARKS = (
    Benchmark(
        name=NAME,
        version=2,
        protocol="zero-shot: cosine of sentences with image 2 less image 1; pairs and queries as in CLIP4IDC",
        citation="Spot-the-Difference (arXiv 1808.10584), PC-CLIP (arXiv 2409.09721), appendix C.3",
        folder=FOLDER,
        needs=(split_need("test", f"{TEST_ROWS:,} rows", "170 kB"), PICTURES),
        metrics=(
            Metric("recall_at_k", higher_is_better=True, ties="a pair as similar as the right one is ranked first"),
        ),
        score=score,
        tested=tested,
    ),
)
