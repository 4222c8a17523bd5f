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
from components.benchmarks.files.rows import read_rows
from components.benchmarks.protocols.difference import difference_features
from components.benchmarks.published_benchmark import Need, Published, Tested
from components.core.errors import InputError
from components.core.metrics import gold_ranks, hit_at_k

NAME = "spot_the_difference"
TEST_ROWS = 1404


def score(context: BenchmarkContext) -> Scores:
    """Recall@k of image pairs, one query per sentence."""
    pairs = _pairs(context)
    folder = context.folder / "resized_images"
    before, after = (
        np.asarray(context.images([picture_file(folder / f"{image}{ending}.png") for image in pairs]))
        for ending in ("", "_2")
    )
    sentences = [(sentence, row) for row, told in enumerate(pairs.values()) for sentence in told]
    queries = context.texts([sentence for sentence, _ in sentences])
    gold = np.array([row for _, row in sentences], dtype=np.int64)
    ranks = gold_ranks(queries, difference_features(after, before), gold, ties="pessimistic")
    values = {f"{NAME}/recall_at_{k}": hit_at_k(ranks, k) for k in context.ks}
    return Scores(values, pictures=dict.fromkeys(values, gold))


def tested(context: BenchmarkContext) -> Tested:
    """All sentences, and both images of each pair."""
    pairs = _pairs(context)
    folder = context.folder / "resized_images"
    files = [folder / f"{image}{ending}.png" for image in pairs for ending in ("", "_2")]
    return Tested([sentence for told in pairs.values() for sentence in told], files)


def _pairs(context: BenchmarkContext) -> dict[str, list[str]]:
    """Image id -> the sentences about its pair, in the file's order."""
    rows = read_rows(context, "annotations/test.json", {"img_id": str, "sentences": list})
    context.expect("annotations/test.json", len(rows), TEST_ROWS)
    pairs: dict[str, list[str]] = {}
    for row in rows:
        told = [sentence.strip() for sentence in row["sentences"] if isinstance(sentence, str)]
        pairs.setdefault(row["img_id"], []).extend(sentence for sentence in told if sentence)
    if not any(pairs.values()):
        raise InputError(f"{context.folder / 'annotations/test.json'} has no sentences: fetch it again")
    return pairs


_SOURCE = "github.com/harsh19/spot-the-diff"

BENCHMARKS = (
    Published(
        name=NAME,
        version=2,
        protocol="zero-shot: cosine of sentences with image 2 less image 1; pairs and queries as in CLIP4IDC",
        citation="Spot-the-Difference (arXiv 1808.10584), PC-CLIP (arXiv 2409.09721), appendix C.3",
        folder="spot_the_difference",
        needs=(
            Need(
                "annotations/test.json", f"{TEST_ROWS:,} rows", "170 kB", "not stated", f"{_SOURCE}, data/annotations"
            ),
            Need(
                "resized_images",
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
