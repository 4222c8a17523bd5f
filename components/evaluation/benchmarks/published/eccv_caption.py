"""Retrieval on COCO's test split with all human-verified matches: ECCV Caption (Chun et al. 2022) and CxC.

COCO lists one image per caption, although other images match it too; retrieving those counts as an error. ECCV Caption
has 1,332 captions with 8.5 images each and 1,261 images with 17.9 captions each; CxC (Crisscrossed Captions, Parekh et
al. 2021) has 24,972 and 5,000. As in the package's own evaluation the gallery is COCO's 5,000 test images, or the five
captions of each, and a match outside it counts as not retrieved.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from components.core.compute.metrics import Features, Indices, top_k
from components.core.system.errors import InputError
from components.data.test_sets.readers import eccv_caption as reader
from components.evaluation.scoring.benchmark import Benchmark, Scores, grouped, metrics
from components.evaluation.scoring.protocols.retrieval import TIES, WAYS
from components.evaluation.scoring.published_context import PublishedContext


@dataclass(frozen=True)
class EmbeddedItems:
    """Captions or images: COCO's ids, and unit features `[items, dim]`."""

    ids: list[int]
    features: Features

    @cached_property
    def rows(self) -> dict[int, int]:
        """Row of each id."""
        return {name: row for row, name in enumerate(self.ids)}


def ranking_scores(ranked: Indices, matching: set[int]) -> dict[str, float]:
    """mAP@R, R-precision and recall@1 of one query, with R the number of its `matching` ids.

    `ranked` are ids by similarity, R of them or more, or the whole gallery.
    """
    hits = np.isin(ranked[: len(matching)], list(matching))
    precision = hits.cumsum() / np.arange(1, len(hits) + 1)
    return {
        "map_at_r": float((precision * hits).mean()),
        "r_precision": float(hits.mean()),
        "recall_at_1": float(hits[0]),
    }


def score(context: PublishedContext) -> Scores:
    """ECCV Caption's three metrics and CxC's recall@k of each query, in both directions."""
    known = reader.published_matches()
    texts = reader.read_captions(context)
    captions = EmbeddedItems(list(texts), context.texts([*texts.values()]))
    images = EmbeddedItems(known.images, context.image_files(reader.PICTURES, map(reader.image_name, known.images)))
    scores = Scores({})
    for way, (queries, gallery) in zip(WAYS, ((captions, images), (images, captions)), strict=True):
        for name, matches in (("eccv", known.eccv[way]), ("cxc", known.cxc[way])):
            there = {query: matching for query, matching in matches.items() if query in queries.rows}
            if not there:
                raise InputError(
                    f"{context.folder / reader.FILE} has none of the queries of {way} in {name}: fetch it again"
                )
            found = _scored(name, there, queries, gallery, context.ks)
            columns = {metric: np.array([one[metric] for one in found]) for metric in found[0]}
            # Each image is a query once.
            about = [images.rows[known.about[query] if queries is captions else query] for query in there]
            scores.update(grouped(f"{reader.NAME}/{name}/{way}", columns, np.array(about, dtype=np.int64)))
    return scores


def _scored(
    name: str, matches: reader.Matches, queries: EmbeddedItems, gallery: EmbeddedItems, ks: tuple[int, ...]
) -> list[dict[str, float]]:
    """The metrics of each query of one set of matches."""
    deepest = max(map(len, matches.values())) if name == "eccv" else max(ks)
    rows = np.array([queries.rows[query] for query in matches], dtype=np.int64)
    ranked = np.array(gallery.ids)[top_k(queries.features[rows], gallery.features, min(deepest, len(gallery.ids)))]
    each = zip(ranked, map(set, matches.values()), strict=True)
    if name == "eccv":
        return [ranking_scores(row, matching) for row, matching in each]
    hits = (np.isin(row, list(matching)) for row, matching in each)
    return [{f"recall_at_{k}": float(hit[:k].any()) for k in ks} for hit in hits]


BENCHMARKS = (
    Benchmark(
        name=reader.NAME,
        version=1,
        protocol="ECCV Caption: mAP@R, R-precision, recall@1; CxC: recall@k; on Karpathy's COCO test, both ways",
        citation="Chun et al., ECCV Caption, ECCV 2022 (arXiv 2204.03359); Parekh et al., CxC, EACL 2021",
        folder=reader.FOLDER,
        needs=reader.FILES,
        metrics=metrics(TIES, "map_at_r", "r_precision", "recall_at_k"),
        score=score,
    ),
)
