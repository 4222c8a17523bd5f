"""Spot-the-Difference: does a sentence about a difference retrieve its pair of images? (Jhamtani 2018)

PC-CLIP's table 12 gives recall@5 and @10 of CLIP4IDC, a model with a fusion head trained on this data set. Here no head
is trained: a pair's feature is the difference that PC-CLIP trains on, image 2 less image 1, so figures are not those of
that table. As in CLIP4IDC, rows of one image id are one pair, every sentence is a query, and all pairs of the test
split are the gallery. Some sentences state that nothing has changed; no encoder can place them.
"""

from __future__ import annotations

import numpy as np

from components.core.compute.metrics import gold_ranks, hit_at_k
from components.data.test_sets.readers.spot_the_difference import FILES, IMAGES, NAME, frame_names, read_frame_pairs
from components.evaluation.scoring.benchmark import Benchmark, Scores, grouped, metrics
from components.evaluation.scoring.protocols.geometry import difference_features
from components.evaluation.scoring.published_context import PublishedContext

RECALL = metrics("a pair as similar as the right one is ranked first", "recall_at_k")


def score(context: PublishedContext) -> Scores:
    """Recall@k of image pairs, one query per sentence."""
    pairs = read_frame_pairs(context, "test")
    before, after = (
        np.asarray(context.image_files(IMAGES, side)) for side in zip(*map(frame_names, pairs), strict=True)
    )
    queries = context.texts([sentence for sentences in pairs.values() for sentence in sentences])
    gold = np.repeat(np.arange(len(pairs), dtype=np.int64), [len(sentences) for sentences in pairs.values()])
    ranks = gold_ranks(queries, difference_features(after, before), gold, ties="pessimistic")
    return grouped(NAME, {f"recall_at_{k}": hit_at_k(ranks, k) for k in context.ks}, gold)


BENCHMARKS = (
    Benchmark(
        name=NAME,
        version=2,
        protocol="zero-shot: cosine of sentences with image 2 less image 1; pairs and queries as in CLIP4IDC",
        citation="Spot-the-Difference (arXiv 1808.10584), PC-CLIP (arXiv 2409.09721), appendix C.3",
        folder=NAME,
        needs=FILES,
        metrics=RECALL,
        score=score,
    ),
)
