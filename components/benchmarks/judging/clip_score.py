"""CLIPScore: how well an image fits a text, by an encoder that is not the one under test (Hessel et al. 2021)."""

from __future__ import annotations

import numpy as np

from components.benchmarks.encoding.encoder_under_test import EncoderUnderTest
from components.benchmarks.encoding.published_context import PublishedContext
from components.core.errors import InputError, told_of
from components.core.metrics import Features, Reals

SCORER = "ViT-bigG-14:laion2b_s39b_b160k"
"""A ViT-G/14 trained on the English part of LAION-2B, as PC-CLIP's appendix D.1 has it."""
OPTION = {"scorer": f"open_clip's encoder that scores, <name>:<tag> or <name>:<weights file>; {SCORER} by default"}
"""For `Benchmark.options`."""
_WEIGHT = 2.5
"""Hessel et al.'s w, section 3: it stretches the cosines that there are to about 0 to 1."""


def clip_scores(cosines: Features) -> Reals:
    """`2.5 * max(cos, 0)` of the cosine of each image with its text, `[images]`."""
    scores: Reals = _WEIGHT * np.maximum(cosines.astype(np.float64), 0)
    return scores


def scorer_of(context: PublishedContext) -> EncoderUnderTest:
    """The encoder that the option `scorer` names.

    Raises:
        InputError: there is no such model or tag, its weights cannot be read or fetched, or the name has no colon.
    """
    chosen = context.options.get("scorer", SCORER)
    if isinstance(chosen, EncoderUnderTest):
        return chosen
    name = str(chosen)
    model, colon, weights = name.partition(":")
    if not colon:
        raise InputError(f"--option scorer={name} names no weights: give <name>:<tag> of open_clip, such as {SCORER}")
    from components.base.base import encoder_by_name

    with told_of(f"--option scorer={name}"):
        encoder = encoder_by_name(model, weights)
    tower = encoder.image_tower_hash()
    return EncoderUnderTest(name, encoder, tower, tower, encoder.sidecar.image_size)
