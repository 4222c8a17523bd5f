"""Queries that exclude something, `a street -people` or `a street without people`, without training.

SpaceVLM (arXiv 2511.12331) scores pictures by the central direction of the region that is near one text and far from
another. Here both are caps of the same angle around their texts. Where they overlap, the rest of the first cap has its
centre in the plane of the two texts: the first text, turned away from the second by the angle of a cap less half of the
angle between the texts. This is built from the paper's abstract, not from its formula.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from components.encoders.adapter.encoder import Vectors, unit_rows

CAP = 60.0
"""Angle of a cap in degrees."""
_EXCLUDED = re.compile(
    r"\s-(?=[^\W\d_])|\s(?:without|but (?:not|no)|with no|excluding)\s(?:an? |the |any )?", re.IGNORECASE
)


def parts_of(query: str) -> list[str]:
    """The wanted thing, and then each excluded thing; only the query itself if it excludes nothing.

    >>> parts_of("a street -people -cars")
    ['a street', 'people', 'cars']
    >>> parts_of("a beach without a dog")
    ['a beach', 'dog']
    >>> parts_of("a t-shirt, size 4-6")
    ['a t-shirt, size 4-6']
    """
    parts = [part.strip(" ,.") for part in _EXCLUDED.split(query)]
    return parts if len(parts) > 1 and all(parts) else [query]


def excluding(wanted: Vectors, excluded: Vectors, cap: float = CAP) -> Vectors:
    """Unit vectors `[queries, dim]`, each turned away from what its row of `excluded` `[queries, dim]` says.

    Texts more than twice `cap` degrees apart stay as they are, because their caps do not overlap.
    """
    cosine = (wanted * excluded).sum(axis=1, keepdims=True).clip(-1, 1)
    turn = np.maximum(0, np.radians(cap) - np.arccos(cosine) / 2)
    away, length = unit_rows(cosine * wanted - excluded)
    # Equal texts have no direction away from each other.
    turned = np.cos(turn) * wanted + np.sin(turn) * away
    return np.where(length[:, None] > 1e-6, turned, wanted).astype(np.float32)


def embed_queries(embed: Callable[[Sequence[str]], Vectors], queries: Sequence[str], cap: float = CAP) -> Vectors:
    """Unit vectors `[queries, dim]` of queries of which some exclude something.

    Args:
        embed: texts to unit vectors `[texts, dim]`.
    """
    parts = [parts_of(query) for query in queries]
    texts = list(dict.fromkeys(part for each in parts for part in each))
    found = dict(zip(texts, embed(texts), strict=True))
    return np.stack([combined([found[part] for part in each], cap) for each in parts])


def combined(vectors: Sequence[Vectors], cap: float = CAP) -> Vectors:
    """The unit vector `[dim]` of a query's parts."""
    wanted = vectors[0]
    for excluded in vectors[1:]:
        wanted = excluding(wanted[None], excluded[None], cap)[0]
    return wanted
