"""Retrieval between images and captions where an image has several captions, as on Karpathy's splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from components.core.metrics import BLOCK, Features, Indices, Reals, finite, gold_ranks, hit_at_k

SUMMED = (1, 5, 10)
"""Depths that mean recall and RSUM take in, both ways."""
WAYS = ("text_to_image", "image_to_text")


def best_gold_ranks(queries: Features, gallery: Features, owners: Indices) -> Indices:
    """Rank of the best of each query's gold gallery rows, 0 being the first; ties go to the earlier gallery row.

    Args:
        queries: `[queries, dim]`.
        gallery: `[items, dim]`.
        owners: the query whose gold item each gallery row is `[items]`; every query has at least one.

    Returns:
        `[queries]`.
    """
    finite(queries, gallery)
    ranks = np.empty(len(queries), dtype=np.int64)
    positions, transposed = np.arange(len(gallery)), np.ascontiguousarray(gallery.T)
    for start in range(0, len(queries), BLOCK):
        numbers = np.arange(start, min(start + BLOCK, len(queries)))
        similarity = queries[numbers] @ transposed
        own = np.where(owners == numbers[:, None], similarity, -np.inf)
        best = own.argmax(axis=1)[:, None]
        reference = np.take_along_axis(similarity, best, axis=1)
        ahead = (similarity > reference) | ((similarity == reference) & (positions < best))
        ranks[numbers] = ahead.sum(axis=1)
    return ranks


def caption_recalls(images: Features, captions: Features, owners: Indices, ks: Sequence[int]) -> dict[str, Reals]:
    """`<way>/recall_at_k` both ways: the share of queries with a gold item among the first k (hit rate).

    Args:
        images: `[images, dim]`.
        captions: `[captions, dim]`.
        owners: each caption's image `[captions]`.
        ks: depths.

    Returns:
        `[captions]` for text to image, `[images]` for image to text.
    """
    ranks = dict(
        zip(WAYS, (gold_ranks(captions, images, owners), best_gold_ranks(images, captions, owners)), strict=True)
    )
    return {f"{way}/recall_at_{k}": hit_at_k(ranks[way], k) for way in WAYS for k in ks}


def recall_sum(recalls: Mapping[str, Reals]) -> float:
    """RSUM: recall at 1, 5 and 10 both ways, added up; shares, so it is a hundredth of what papers print."""
    finite(*recalls.values())
    return float(sum(recalls[f"{way}/recall_at_{k}"].mean() for way in WAYS for k in SUMMED))
