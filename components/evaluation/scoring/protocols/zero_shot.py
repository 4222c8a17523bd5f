"""Zero-shot classification on features, plain and with comparative prompting.

Of equally similar classes the first in the list of classes is chosen.

Comparative prompting corrects class prompts by how two confused classes differ (PC-CLIP, section 3.4 and A.2).
"""

from __future__ import annotations

import numpy as np

from components.core.compute.metrics import Features, Indices, Reals, finite, gold_ranks, hit_at_k


def unit(features: Features) -> Features:
    """`features` `[..., dim]` divided by their norms; a zero stays zero."""
    finite(features)
    norm = np.linalg.norm(features, axis=-1, keepdims=True)
    return np.asarray(features / np.maximum(norm, np.finfo(np.float32).tiny), dtype=np.float32)


def prompt_ensemble(prompts: Features) -> Features:
    """Classifier weights `[classes, dim]` of several prompts per class `[prompts, classes, dim]`, of any norm.

    Each prompt's feature is normalised, and their mean again (Radford et al. 2021, section 3.1.4, as open_clip does).
    """
    return unit(np.asarray(unit(prompts).mean(axis=0), dtype=np.float32))


def top_accuracy(images: Features, weights: Features, labels: Indices, depth: int = 1) -> Reals:
    """1 for each image whose class is among the `depth` most similar ones, else 0 `[images]`."""
    return hit_at_k(gold_ranks(images, weights, labels), depth)


def comparative_weights(
    weights: Features, differences: Features, described: Indices, updated: Indices, alpha: float
) -> Features:
    """Classifier weights `[classes, dim]` corrected by texts about differences (PC-CLIP, section 3.4, equation 3).

    With A the updated class and B the described one, f'_A = alpha f_A + (1 - alpha)(f_B - f_{B-A}), normalised. If
    several differences update a class, their estimates f_B - f_{B-A} are averaged, as in the released code. Classes
    that no difference updates are unchanged. `differences` has the unit features f_{B-A} of "how B differs from A"
    `[differences, dim]`, `described` and `updated` B and A of each.
    """
    finite(weights, differences, alpha)
    new = weights.copy()
    estimates = weights[described] - differences
    for number in np.unique(updated):
        new[number] = alpha * weights[number] + (1 - alpha) * estimates[updated == number].mean(axis=0)
    touched = np.unique(updated)
    new[touched] = unit(new[touched])
    return new
