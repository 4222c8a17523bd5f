"""How features lie in their space: differences, opposites, modality gap, alignment, uniformity, analogies.

Pure functions on unit features, which know nothing of files.
"""

from __future__ import annotations

import numpy as np

from components.benchmarks.protocols.difference import margins
from components.core.metrics import BLOCK, Features, Indices, Reals, finite


def comparison_distance(first: Features, second: Features, difference: Features) -> Reals:
    """Cosine distance d(f_A - f_B, f_{A-B}) of every pair (PC-CLIP, table 7, "comparison"; small is good).

    Args:
        first, second: features of A and of B, `[pairs, dim]`.
        difference: features of the text that says how A differs from B `[pairs, dim]`.

    Returns:
        `[pairs]` in [0, 2]; 1 where A and B have the same features.
    """
    return np.asarray(1 - margins(first, second, difference).astype(np.float64))


def reverse_comparison_distance(first: Features, second: Features, difference: Features) -> Reals:
    """Cosine distance d(f_B - f_A, f_{A-B}), which is 2 less the other (table 7, "reverse"; large is good)."""
    return comparison_distance(second, first, difference)


def antisymmetry(difference: Features, opposite: Features) -> Reals:
    """How opposite f_{A-B} and f_{B-A} are `[pairs]`: 1 where one is the negative of the other, -1 where they are one.

    PC-CLIP's comparative prompting (section 3.4) rests on the two not being the same.
    """
    finite(difference, opposite)
    return np.asarray(-np.einsum("nd,nd->n", difference.astype(np.float64), opposite))


def modality_gap(images: Features, texts: Features) -> float:
    """Distance of the mean image feature from the mean text feature (Liang et al. 2022, arXiv 2203.02053, section 4.2).

    Args:
        images, texts: unit features `[images, dim]` and `[texts, dim]`.
    """
    finite(images, texts)
    return float(np.linalg.norm(images.mean(axis=0, dtype=np.float64) - texts.mean(axis=0, dtype=np.float64)))


def alignment(first: Features, second: Features) -> Reals:
    """Squared distance of the two features of each positive pair `[pairs]`; the mean is l_align for alpha 2
    (Wang and Isola 2020, arXiv 2005.10242, section 4.1)."""
    finite(first, second)
    return np.asarray(np.square(first.astype(np.float64) - second).sum(axis=1))


def uniformity(features: Features) -> float:
    """Logarithm of the mean Gaussian potential of all pairs of `[items, dim]`, l_uniform for t = 2
    (Wang and Isola 2020, section 4.1); 0 for features that are all the same, -4 for the best that is possible.

    Raises:
        ValueError: there are fewer than two features.
    """
    finite(features)
    count = len(features)
    if count < 2:
        raise ValueError("a single feature is not spread over anything")
    total = 0.0
    for start in range(0, count, BLOCK):
        # Unit vectors: the squared distance is 2 - 2 cos.
        potential = np.exp(4 * (features[start : start + BLOCK].astype(np.float64) @ features.T - 1))
        total += float(potential.sum()) - float(np.trace(potential, offset=start))
    return float(np.log(total / (count * (count - 1))))


def analogy_ranks(vocabulary: Features, questions: Indices) -> Indices:
    """Rank of the right word of each question "a is to b as c is to d", 0 being the best `[questions]`.

    The answer is the word nearest to f_b - f_a + f_c, other than a, b and c (Mikolov et al. 2013, arXiv 1301.3781,
    section 4). A word as near as the right one counts as nearer.

    Args:
        vocabulary: features of all words `[words, dim]`.
        questions: rows of a, b, c and d in the vocabulary `[questions, 4]`.
    """
    finite(vocabulary)
    ranks = np.empty(len(questions), dtype=np.int64)
    for start in range(0, len(questions), BLOCK):
        asked = questions[start : start + BLOCK]
        a, b, c = (vocabulary[asked[:, column]] for column in range(3))
        near = (b - a + c) @ vocabulary.T
        rows = np.arange(len(asked))
        right = near[rows, asked[:, 3]].copy()
        near[rows[:, None], asked[:, :3]] = -np.inf
        # A right word that is one of the three can never be the answer.
        possible = np.isfinite(near[rows, asked[:, 3]])
        better = (near >= right[:, None]).sum(axis=1) - 1
        ranks[start : start + BLOCK] = np.where(possible, better, vocabulary.shape[0])
    return ranks
