"""Geometry of features: differences of pairs, opposites, alignment and potentials.

Difference-based classification compares the difference of two images with a text about it (PC-CLIP, section 3.3).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from components.core.compute.devices import FeatureGallery, fetched
from components.core.compute.metrics import BLOCK, Features, Reals, finite

Ties = Literal["right", "wrong"]


def difference_features(first: Features, second: Features) -> Features:
    """Unit vectors of `first - second`, all `[pairs, dim]`; zeros where the two are the same."""
    finite(first, second)
    difference = first.astype(np.float64) - second
    length = np.linalg.norm(difference, axis=1, keepdims=True)
    return np.asarray(difference / np.where(length == 0, 1, length), dtype=np.float32)


def margins(first: Features, second: Features, texts: Features) -> Features:
    """Cosine of each text with the difference of its two images `[pairs]`; inputs are `[pairs, dim]`, unit vectors."""
    finite(texts)
    return np.asarray(np.einsum("nd,nd->n", difference_features(first, second), texts), dtype=np.float32)


def classified(found: Features, ties: Ties) -> Reals:
    """1 where the margin `[pairs]` puts the two images in the right order, else 0.

    A margin of zero counts as `right` by equation 2 of the paper (>=), and as `wrong` in the released code (>).
    """
    finite(found)
    return (found >= 0 if ties == "right" else found > 0).astype(np.float64)


def comparison_distance(first: Features, second: Features, difference: Features) -> Reals:
    """Cosine distance d(f_A - f_B, f_{A-B}) of every pair (PC-CLIP, table 7, "comparison"; small is good).

    With A and B swapped it is "reverse", which is 2 less the other; large is good. `difference` has the features of the
    text that says how A differs from B. Features are `[pairs, dim]`, distances `[pairs]` in [0, 2], and 1 where A and B
    have the same features.
    """
    return np.asarray(1 - margins(first, second, difference).astype(np.float64))


def antisymmetry(difference: Features, opposite: Features) -> Reals:
    """Opposition of f_{A-B} and f_{B-A} `[pairs]`: 1 if one is the negative of the other, -1 if they are equal.

    PC-CLIP's comparative prompting (section 3.4) requires that the two differ.
    """
    finite(difference, opposite)
    return np.asarray(-np.einsum("nd,nd->n", difference.astype(np.float64), opposite))


def alignment(first: Features, second: Features) -> Reals:
    """Squared distance of the two features of each positive pair `[pairs]`; the mean is l_align for alpha 2
    (Wang and Isola 2020, arXiv 2005.10242, section 4.1)."""
    finite(first, second)
    return np.asarray(np.square(first.astype(np.float64) - second).sum(axis=1))


def gaussian_potential(features: Features) -> Reals:
    """Mean of exp(-2 |f_i - f_j|^2) over all other items j of unit `features` `[items, dim]`, per item `[items]`.

    It is 1 if all features are the same, and 0 for a single item. The logarithm of the mean is l_uniform for t = 2.
    """
    finite(features)
    means, against = np.zeros(len(features), dtype=np.float64), FeatureGallery(features.astype(np.float64))
    for start in range(0, len(features), BLOCK):
        rows = features[start : start + BLOCK].astype(np.float64)
        potential = np.exp(4 * (fetched(against.similarities(rows)) - 1))
        diagonal = potential[np.arange(len(rows)), start + np.arange(len(rows))]
        means[start : start + BLOCK] = (potential.sum(axis=1) - diagonal) / max(1, len(features) - 1)
    return means
