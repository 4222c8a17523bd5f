"""Ranking metrics as pure functions; every one returns a value per query, so that intervals can be drawn.

All refuse NaN and infinite numbers with a `ValueError`: no comparison with NaN is true, so it would rank first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from components.core.compute.devices import FeatureGallery, Values, fetched, in_batches, placed, taken

if TYPE_CHECKING:
    from torch import Tensor

Reals = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Features = npt.NDArray[np.float32]
Ties = Literal["position", "pessimistic"]

BLOCK = 512
"""Rows that are compared with all others in one step."""
_CELLS = 1 << 24
"""Similarities in memory at once: 64 MB."""
_SAMPLE, _MANY = 4096, 256
"""Items for a lower bound of the best, and the number of candidates per wanted item above which sorting is too slow."""


def finite(*arrays: npt.NDArray[Any] | float) -> None:
    """Refuse numbers for which metrics are undefined.

    Raises:
        ValueError: an array holds NaN or an infinite number.
    """
    if not all(np.isfinite(array).all() for array in arrays):
        raise ValueError("a metric is given NaN or infinite numbers: the features or scores behind it are damaged")


def shared(pictures: Indices) -> bool:
    """Whether queries share a picture: each is about the picture of a number `[queries]`, or of two `[queries, 2]`."""
    return len(np.unique(pictures)) < pictures.size


def average_overlap(ranks_a: npt.NDArray[Any], ranks_b: npt.NDArray[Any], k: int) -> Reals:
    """AO@k of two ranked lists per query (ParaCLIP, appendix B, equation 1).

    Args:
        ranks_a, ranks_b: gallery indices `[queries, >= k]`, best first, no index twice in a row.
        k: depth.

    Returns:
        `[queries]` in [0, 1]; 1 only where the first k entries are the same in the same order.

    >>> average_overlap(np.array([[0, 1, 2]]), np.array([[1, 0, 3]]), 2)  # 0 of 1 at depth 1, 2 of 2 at depth 2
    array([0.5])
    """
    queries, first, second = np.nonzero(_matches(ranks_a, ranks_b, k))
    # An item in both lists is in the intersection from the deeper of its two places on.
    entered = np.bincount(queries * k + np.maximum(first, second), minlength=len(ranks_a) * k)
    overlap = np.cumsum(entered.reshape(len(ranks_a), k), axis=1)
    return np.asarray((overlap / np.arange(1, k + 1)).mean(axis=1), dtype=np.float64)


def jaccard_similarity(ranks_a: npt.NDArray[Any], ranks_b: npt.NDArray[Any], k: int) -> Reals:
    """JS@k of two ranked lists per query (ParaCLIP, appendix B, equation 2); arguments as `average_overlap`.

    >>> jaccard_similarity(np.array([[0, 1, 2]]), np.array([[1, 0, 3]]), 3)  # 2 in both, 4 in either
    array([0.5])
    """
    shared = _matches(ranks_a, ranks_b, k).sum(axis=(1, 2))
    return np.asarray(shared / (2 * k - shared), dtype=np.float64)


def shared_of_top(ranks_a: npt.NDArray[Any], ranks_b: npt.NDArray[Any], k: int) -> Reals:
    """The share of the first k entries that two ranked lists have in common; arguments as `average_overlap`.

    >>> shared_of_top(np.array([[0, 1, 2]]), np.array([[1, 0, 3]]), 3)  # 2 of 3
    array([0.66666667])
    """
    return np.asarray(_matches(ranks_a, ranks_b, k).sum(axis=(1, 2)) / k, dtype=np.float64)


def rank_correlation(queries: Features, others: Features, gallery: Features) -> Reals:
    """Spearman's correlation of each two rankings of the gallery `[queries]`, in [-1, 1].

    The correlation of a text that is equally similar to all images is 0.

    Args:
        queries, others: `[queries, dim]`, row i of both belong together.
        gallery: `[items, dim]`.

    Raises:
        ValueError: a number is NaN or infinite.
    """
    # scipy.stats takes a second to import, which not every stage needs.
    from scipy.stats import rankdata

    finite(queries, others, gallery)
    against = FeatureGallery(gallery)

    def correlations(rows: slice) -> Values:
        sides = (against.similarities(side[rows]) for side in (queries, others))
        if against.device != "cpu":
            return _rank_correlations(*map(_mean_ranks, sides))
        return row_correlations(*(rankdata(side, axis=1) for side in sides))

    # Rounding may exceed one slightly.
    return np.asarray(np.clip(in_blocks(len(queries), against, correlations), -1.0, 1.0))


def _mean_ranks(similarity: Tensor) -> Tensor:
    """As scipy's `rankdata` on a GPU: rank of each column `[rows, items]`; equal ones share the mean of theirs."""
    import torch

    ascending = similarity.sort(dim=1).values
    below, up_to = (torch.searchsorted(ascending, similarity, right=right) for right in (False, True))
    return (below + up_to + 1).double() / 2


def _rank_correlations(first: Tensor, second: Tensor) -> Tensor:
    """As `row_correlations` on a GPU, of ranks."""
    first, second = (ranks - (ranks.shape[1] + 1) / 2 for ranks in (first, second))
    spread = (first.square().sum(dim=1) * second.square().sum(dim=1)).sqrt()
    return (first * second).sum(dim=1) / spread.masked_fill(spread == 0, 1)


def row_correlations(first: Reals, second: Reals) -> Reals:
    """Pearson's correlation of each row of `first` with the same row of `second`, both `[rows, columns]`.

    The result, `[rows]`, is 0 where a row is constant.

    Raises:
        ValueError: a number is NaN or infinite.

    >>> row_correlations(np.array([[1.0, 2.0], [1.0, 2.0]]), np.array([[2.0, 1.0], [3.0, 3.0]]))
    array([-1.,  0.])
    """
    finite(first, second)
    # Before the mean is subtracted: a rounded mean leaves a constant row with a tiny spread.
    constant = (np.ptp(first, axis=1) == 0) | (np.ptp(second, axis=1) == 0)
    first, second = (rows - rows.mean(axis=1, keepdims=True) for rows in (first, second))
    spread = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
    products = (first * second).sum(axis=1)
    correlations = np.zeros(len(first))
    np.divide(products, spread, out=correlations, where=~constant & (spread > 0))
    return correlations


def _matches(ranks_a: npt.NDArray[Any], ranks_b: npt.NDArray[Any], k: int) -> npt.NDArray[np.bool_]:
    finite(ranks_a, ranks_b)
    if min(ranks_a.shape[1], ranks_b.shape[1]) < k:
        raise ValueError(f"lists of {ranks_a.shape[1]} and {ranks_b.shape[1]} items have no top {k}")
    matches: npt.NDArray[np.bool_] = ranks_a[:, :k, None] == ranks_b[:, None, :k]
    return matches


def hit_at_k(ranks: Indices, k: int) -> Reals:
    """1 where the gold item's rank (0 is best) is among the first k, else 0; the mean is recall@k for one gold item.

    >>> hit_at_k(np.array([0, 4, 5]), 5)
    array([1., 1., 0.])
    """
    finite(ranks)
    return (ranks < k).astype(np.float64)


def strictly_greater(scores: Features, others: Features) -> Reals:
    """1 where `scores` exceeds `others`, else 0: a tie is a failure."""
    finite(scores, others)
    return (scores > others).astype(np.float64)


def top_k(queries: Features, gallery: Features, k: int) -> Indices:
    """The k most similar gallery rows per query, best first `[queries, k]`; ties go to the earlier gallery row.

    >>> gallery = np.array([[1, 0], [0, 1], [1, 0]], dtype=np.float32)
    >>> top_k(np.array([[1, 0]], dtype=np.float32), gallery, 2)
    array([[0, 2]])
    """
    if k > len(gallery):
        raise ValueError(f"a gallery of {len(gallery)} items has no top {k}")
    finite(queries, gallery)
    against = FeatureGallery(gallery)
    return in_blocks(len(queries), against, lambda rows: top_columns(against.similarities(queries[rows]), k))


def top_columns(similarity: Values, k: int) -> Values:
    """As `top_k`, of similarities `[queries, items]` on any device, of which there are at least k."""
    return best_columns(similarity, k) if isinstance(similarity, np.ndarray) else tensor_columns(similarity, k)


def tensor_columns(similarity: Tensor, k: int) -> Tensor:
    """As `best_columns` on a GPU, without a step that waits for it."""
    import torch

    # torch.topk leaves open which of equal values it returns.
    bound = similarity.topk(k, dim=1).values[:, -1:]
    above, level = similarity > bound, similarity == bound
    chosen = above | (level & (level.cumsum(dim=1) <= k - above.sum(dim=1, keepdim=True)))
    items = similarity.shape[1]
    columns = items - (chosen * torch.arange(items, 0, -1, device=similarity.device)).topk(k, dim=1).values
    order = similarity.gather(1, columns).sort(dim=1, descending=True, stable=True).indices
    return columns.gather(1, order)


def best_columns(similarity: Features, k: int) -> Indices:
    """As `top_k`, of similarities `[queries, items]`, of which there are at least k."""
    # The k-th best of the first items can only be too low a bound, and most other items are below it.
    first = similarity[:, : max(_SAMPLE, k)]
    bound = np.partition(first, first.shape[1] - k, axis=1)[:, first.shape[1] - k, None]
    row, item = np.nonzero(similarity >= bound)
    if len(row) > _MANY * k * len(similarity):
        return _top_of_level(similarity, k)
    order = np.lexsort((item, -similarity[row, item], row))
    starts = np.searchsorted(row, np.arange(len(similarity)))
    best: Indices = item[order[starts[:, None] + np.arange(k)]]
    return best


def _top_of_level(similarity: Features, k: int) -> Indices:
    """As `best_columns`, where so many items are alike that sorting those above a bound would sort nearly all."""
    threshold = np.partition(similarity, similarity.shape[1] - k, axis=1)[:, similarity.shape[1] - k, None]
    above, level = similarity > threshold, similarity == threshold
    room = k - above.sum(axis=1, keepdims=True)
    chosen = np.nonzero(above | (level & (np.cumsum(level, axis=1) <= room)))[1].reshape(-1, k)
    order = np.argsort(-np.take_along_axis(similarity, chosen, axis=1), axis=1, kind="stable")
    return np.take_along_axis(chosen, order, axis=1)


def gold_ranks(queries: Features, gallery: Features, gold: Indices, ties: Ties = "position") -> Indices:
    """Rank of each query's gold gallery row, 0 being the best `[queries]`.

    Args:
        queries: `[queries, dim]`.
        gallery: `[items, dim]`.
        gold: index of each query's gold item `[queries]`.
        ties: an item as similar as the gold one counts as better if it precedes it in the gallery
            (`position`, agrees with `top_k`) or always (`pessimistic`: an encoder that gives every item
            the same feature gets the last rank).

    >>> query, gallery = np.array([[1, 0]], dtype=np.float32), np.array([[1, 0], [0, 1], [1, 0]], dtype=np.float32)
    >>> gold_ranks(query, gallery, np.array([0])), gold_ranks(query, gallery, np.array([0]), "pessimistic")
    (array([0]), array([1]))
    """
    finite(queries, gallery)
    against = FeatureGallery(gallery)

    def ranks(rows: slice) -> Values:
        similarity = against.similarities(queries[rows])
        target, positions = (placed(numbers, against.device) for numbers in (gold[rows, None], np.arange(len(gallery))))
        reference = taken(similarity, target)
        rivals = positions != target if ties == "pessimistic" else positions < target
        return ((similarity > reference) | ((similarity == reference) & rivals)).sum(axis=1)

    return in_blocks(len(queries), against, ranks)


def in_blocks(
    queries: int, gallery: FeatureGallery, compute: Callable[[slice], Values], size: int | None = None
) -> npt.NDArray[Any]:
    """`compute(rows)` of consecutive blocks of queries, joined; by default a block has 64 MB of similarities."""
    size = size or max(1, _CELLS // max(1, len(gallery)))
    if not queries:
        return fetched(compute(slice(0, 0)))
    parts = in_batches(queries, size, "query", gallery.device, lambda rows: fetched(compute(rows)))
    return np.concatenate([part for _, part in parts])
