"""Query expansion: a query's text feature is averaged with those of its expansions (Cheng et al. 2024, equation 5)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

import numpy as np

from components.core.metrics import Features, Indices, finite

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


def averaged(features: Features, owners: Indices, queries: int) -> Features:
    """Mean feature of each query and its expansions, as a unit vector (equation 5).

    Args:
        features: unit features of all texts, those of one query in any order `[texts, dim]`.
        owners: the query that each text belongs to `[texts]`; every query has at least one.
        queries: how many queries there are.

    Returns:
        `[queries, dim]`; the sum stands for the mean, for length does not matter to a cosine.
    """
    finite(features)
    sums = np.zeros((queries, features.shape[1]), dtype=np.float64)
    np.add.at(sums, owners, features)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.asarray(sums / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def synonym_expansions(
    query: str, synonyms: Callable[[str], list[str]], stop_words: Collection[str], count: int, seed: int
) -> list[str]:
    """Up to `count` copies of `query`, in each of which one word that is no stop word gives way to a synonym.

    Which word and which synonym, the paper does not say: they are drawn without repetition from all pairs, by a
    generator that depends on the seed and the query alone.

    Args:
        query: the text.
        synonyms: gives other words for a word in lower case.
        stop_words: words, in lower case, that stay.
        count: K of the paper, which takes 3.
        seed: of the draw.
    """
    words = [found for found in _WORD.finditer(query) if found.group().lower() not in stop_words]
    pairs = [(found, other) for found in words for other in synonyms(found.group().lower())]
    generator = np.random.default_rng([seed, *query.encode("utf-8")])
    drawn = [pairs[number] for number in generator.permutation(len(pairs))]
    changed = dict.fromkeys(query[: found.start()] + other + query[found.end() :] for found, other in drawn)
    return list(changed)[:count]
