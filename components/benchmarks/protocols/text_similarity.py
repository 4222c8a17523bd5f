"""How well cosines of sentence pairs agree with human scores (SimCSE, section 6 and appendix B)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from components.benchmarks.bootstrap import correlation_value
from components.benchmarks.scores import Correlation
from components.core.metrics import Features, Reals, finite

_DECIMALS = 6
"""Of a cosine: features have single precision, so what follows is noise."""


def pair_cosines(first: Features, second: Features) -> Reals:
    """Cosine of each row of `first` with that of `second`, both `[pairs, dim]`; 0 where one is the zero vector.

    Rounded to six decimals. Many pairs of STS 2012's translations are the same sentence twice: unrounded, noise would
    rank them, and a subset's Spearman would move by 0.001 from one batch size to another, as in the released code.

    Returns:
        `[pairs]` in double precision.
    """
    finite(first, second)
    left, right = first.astype(np.float64), second.astype(np.float64)
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    cosines = np.zeros(len(lengths))
    np.divide(np.einsum("nd,nd->n", left, right), lengths, out=cosines, where=lengths > 0)
    return cosines.round(_DECIMALS)


def spearman_by_subset(benchmark: str, subsets: Mapping[str, tuple[Reals, Reals]]) -> dict[str, Correlation]:
    """Spearman columns of each subset and of all pairs pooled, "all" in SimCSE's appendix B.

    Args:
        benchmark: first part of the metrics' names.
        subsets: name -> gold and predicted similarities, `[pairs]` each.
    """
    gold = np.concatenate([one for one, _ in subsets.values()])
    predicted = np.concatenate([one for _, one in subsets.values()])
    finite(gold, predicted)
    return {f"{benchmark}/all/spearman": Correlation("spearman", gold, predicted)} | {
        f"{benchmark}/{name}/spearman": Correlation("spearman", *columns) for name, columns in subsets.items()
    }


def mean_spearman(benchmark: str, subsets: Mapping[str, tuple[Reals, Reals]]) -> dict[str, float]:
    """Mean over subsets of their Spearman correlations, plain and weighted by pairs: SentEval's own aggregations."""
    values = [correlation_value(Correlation("spearman", *columns)) for columns in subsets.values()]
    return {
        f"{benchmark}/mean/spearman": float(np.mean(values)),
        f"{benchmark}/wmean/spearman": float(np.average(values, weights=[len(gold) for gold, _ in subsets.values()])),
    }
