"""Spot-the-Difference: find the pair of images that a sentence about their difference describes (Jhamtani 2018).

PC-CLIP's table 12 gives recall@5 and @10 of CLIP4IDC, a model with a fusion head trained on this data set. Here no
head is trained: a pair's feature is the difference that PC-CLIP trains on, image 2 less image 1, so figures are not
those of that table. As in CLIP4IDC, rows of one image id are one pair, every sentence is a query, and all pairs of the
test split are the gallery. Some sentences say that nothing has changed; no encoder can place them.
"""

from __future__ import annotations

import numpy as np

from components.benchmarks.benchmark import Metric, Scores
from components.benchmarks.encoding.context import BenchmarkContext
from components.benchmarks.encoding.picture_source import picture_file
from components.benchmarks.files.spot_the_difference import IMAGES, TEST_ROWS, picture_paths, read_pairs, split_file
from components.benchmarks.protocols.difference import difference_features
from components.benchmarks.published_benchmark import Need, Published, Tested
from components.core.metrics import gold_ranks, hit_at_k

NAME = "spot_the_difference"


def score(context: BenchmarkContext) -> Scores:
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


def tested(context: BenchmarkContext) -> Tested:
    """All sentences, and both images of each pair."""
    pairs = read_pairs(context, "test")
    files = [path for image in pairs for path in picture_paths(context, image)]
    return Tested([sentence for told in pairs.values() for sentence in told], files)


_SOURCE = "github.com/harsh19/spot-the-diff"

BENCHMARKS = (
    Published(
        name=NAME,
        version=2,
        protocol="zero-shot: cosine of sentences with image 2 less image 1; pairs and queries as in CLIP4IDC",
        citation="Spot-the-Difference (arXiv 1808.10584), PC-CLIP (arXiv 2409.09721), appendix C.3",
        folder="spot_the_difference",
        needs=(
            Need(split_file("test"), f"{TEST_ROWS:,} rows", "170 kB", "not stated", f"{_SOURCE}, data/annotations"),
            Need(
                IMAGES,
                "<id>.png and <id>_2.png of every pair",
                "1.5 GB",
                "VIRAT, research only",
                f"{_SOURCE}, data/get_images.txt",
            ),
        ),
        metrics=(
            Metric("recall_at_k", higher_is_better=True, ties="a pair as similar as the right one is ranked first"),
        ),
        score=score,
        tested=tested,
    ),
)
