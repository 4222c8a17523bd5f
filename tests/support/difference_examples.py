"""Pairs of vectors that change from one colour to another, and sentences that say so, for captioners to learn from."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from components.core.compute.metrics import Features
from components.experiments.parts.captioned_pairs import Vocabulary, split_words
from components.experiments.parts.clip4idc_model import CaptionedPairs
from tests.support.toy_context import drawn_from, unit

COLOURS = ("red", "green", "blue", "white")
DIM = 16


def vectors_of(words: tuple[str, ...]) -> Features:
    """A direction for each word `[words, DIM]`, drawn from its letters."""
    return unit([drawn_from(word, DIM) for word in words])


def colour_examples(seed: int, times: int) -> CaptionedPairs:
    """Every change of colour `times` times; pictures are noisy, sentences the same in every split."""
    rng = np.random.default_rng(seed)
    changes = [change for _ in range(times) for change in permutations(COLOURS, 2)]
    sides = [np.array([vectors_of((change[side],))[0] for change in changes]) for side in (0, 1)]
    before, after = ((side + 0.1 * rng.normal(size=side.shape)).astype(np.float32)[:, None] for side in sides)
    templates = "the {} wall is {} now", "it turned from {} to {}"
    sentences = [template.format(*change) for change in changes for template in templates]
    features = np.array([_text(sentence) for sentence in sentences], dtype=np.float32)
    pair = np.repeat(np.arange(len(changes)), 2)
    return CaptionedPairs(before, after, tuple(sentences), features, pair.astype(np.int64))


def first_words(vocabulary: Vocabulary) -> Features:
    """Vectors that words start with `[numbers, DIM]`."""
    return np.concatenate([np.zeros((2, DIM), dtype=np.float32), vectors_of(vocabulary.words)])


def _text(sentence: str) -> Features:
    """Later words weigh more, so that the order of two colours matters."""
    words = vectors_of(tuple(split_words(sentence)))
    return unit([np.arange(1, len(words) + 1, dtype=np.float32) @ words])[0]
