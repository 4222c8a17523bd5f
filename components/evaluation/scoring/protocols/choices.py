"""Choices between captions, scored by similarities row by row.

SugarCrepe++ tests triplets: captions P1 and P2 with the same meaning, and N with another (its section 4). SemCLIP
reports on originals, paraphrases and negations (arXiv 2511.16527, section 4 and equation 8).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from components.core.compute.metrics import Features, Indices, Reals, finite, gold_ranks, hit_at_k, strictly_greater
from components.evaluation.scoring.benchmark import Scores, metrics


def row_cosine(first: Features, second: Features) -> Features:
    """Cosine similarity `[rows]` of each row of `first` with that of `second`, both unit features `[rows, dim]`.

    Equal features have equal similarities to the last bit, so ties are detected.
    """
    finite(first, second)
    return np.asarray(np.einsum("nd,nd->n", first, second), dtype=np.float32)


def true_over_false(images: Features, true: Features, false: Features) -> Reals:
    """1 where an image is closer to the true text than to the false one, all `[rows, dim]`; a tie is a failure."""
    return strictly_greater(row_cosine(images, true), row_cosine(images, false))


def at_least(scores: Features, others: Features) -> Reals:
    """1 where `scores` reaches `others`, else 0: a tie is right."""
    finite(scores, others)
    return (scores >= others).astype(np.float64)


def group_numbers(labels: Sequence[str]) -> Indices:
    """Number of each row's group `[rows]`; groups are numbered from 0 in the order of their sorted labels."""
    return np.unique(np.array(labels, dtype=np.str_), return_inverse=True)[1].astype(np.int64)


def image_triplets(images: Features, first: Features, second: Features, negative: Features) -> dict[str, Reals]:
    """ITT `itt`, and its two halves, `i_p1_n` and `i_p2_n`, of unit features `[rows, dim]`; a tie is a failure."""
    at_image = row_cosine(images, negative)
    parts = {
        "i_p1_n": strictly_greater(row_cosine(images, first), at_image),
        "i_p2_n": strictly_greater(row_cosine(images, second), at_image),
    }
    return parts | {"itt": parts["i_p1_n"] * parts["i_p2_n"]}


def text_triplets(first: Features, second: Features, negative: Features) -> Reals:
    """TOT `[rows]`: P1 and P2 are closer to each other than each is to N; arguments as `image_triplets`."""
    together = row_cosine(first, second)
    return strictly_greater(together, row_cosine(first, negative)) * strictly_greater(
        together, row_cosine(second, negative)
    )


def half_truth_choices(images: Features, truth: Features, half: Features, full: Features) -> dict[str, Reals]:
    """The metrics of Kargi et al. (2026, arXiv 2602.23906) on unit features `[rows, dim]`; a tie is a failure.

    `accuracy` is 1 if an image is closer to the short truth than to the half-truth, which adds a false detail.
    `ordered_accuracy`, COR of the released code, also requires that the truth with a true detail is closer still.
    """
    short, false, true = (row_cosine(images, texts) for texts in (truth, half, full))
    right = strictly_greater(short, false)
    return {"accuracy": right, "ordered_accuracy": right * strictly_greater(true, short)}


DEPTHS = (1, 3, 5)
"""The released code's; the paper reports the first."""
SEMCLIP_METRICS = (
    *metrics("the image of the earlier row first", "recall_at_k"),
    *metrics("a tie is a failure", "original_over_negation"),
    *metrics("as in its parts", "composite_score"),
)


def caption_recall(captions: Features, images: Features) -> dict[str, Reals]:
    """`recall_at_k` of each caption's image among all images, which are in the captions' order; both `[rows, dim]`.

    A second row of the same image is another item, so retrieving it counts as a miss, as in the released code.
    """
    ranks = gold_ranks(captions, images, np.arange(len(captions)))
    return {f"recall_at_{k}": hit_at_k(ranks, k) for k in DEPTHS}


def composite_score(original: float, paraphrased: float, over_negation: float) -> float:
    """Mean of two top-1 accuracies and the rescaled accuracy over negations, where chance is 0 (equation 8)."""
    finite(original, paraphrased, over_negation)
    return (original + paraphrased + max(0.0, 2 * (over_negation - 0.5))) / 3


def semclip_scores(
    name: str, pictures: Indices, images: Features, originals: Features, paraphrases: Features, negations: Features
) -> Scores:
    """SemCLIP's metrics as those of benchmark `name`, of unit features `[rows, dim]`.

    `pictures` is the number of each row's picture `[rows]`; rows of one picture have the same.
    """
    captioned = {"original": originals, "paraphrase": paraphrases}
    top = {kind: caption_recall(captions, images) for kind, captions in captioned.items()}
    over = true_over_false(images, originals, negations)
    values = {f"{name}/{kind}/{metric}": column for kind, found in top.items() for metric, column in found.items()}
    original, paraphrase = (float(top[kind]["recall_at_1"].mean()) for kind in ("original", "paraphrase"))
    values[f"{name}/original_over_negation"] = over
    return Scores(
        values,
        pictures=dict.fromkeys(values, pictures),
        scalars={f"{name}/composite_score": composite_score(original, paraphrase, float(over.mean()))},
    )
