"""Pairs of vectors that change from one colour to another, and sentences that say so, for captioners to learn from."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from components.core.compute.metrics import Features
from components.experiments.parts.captioned_pairs import Vocabulary, split_words
from components.experiments.parts.clip4idc_model import CaptionedPairs

COLOURS = ("red", "green", "blue", "white")
DIM = 16


def vectors_of(words: tuple[str, ...]) -> Features:
    """A direction for each word `[words, DIM]`, drawn from its letters."""
    drawn = np.array([np.random.default_rng(list(word.encode())).normal(size=DIM) for word in words])
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), dtype=np.float32)


def colour_examples(seed: int, times: int) -> CaptionedPairs:
    """Every change of colour `times` times; pictures are noisy, sentences the same in every split."""
    rng = np.random.default_rng(seed)
    changes = [change for _ in range(times) for change in permutations(COLOURS, 2)]
    sides = [np.array([vectors_of((change[side],))[0] for change in changes]) for side in (0, 1)]
    before, after = ((side + 0.1 * rng.normal(size=side.shape)).astype(np.float32)[:, None] for side in sides)
    sentences = [
        sentence
        for old, new in changes
        for sentence in (f"the {old} wall is {new} now", f"it turned from {old} to {new}")
    ]
    features = np.array([_text(sentence) for sentence in sentences], dtype=np.float32)
    pair = np.repeat(np.arange(len(changes)), 2)
    return CaptionedPairs(before, after, tuple(sentences), features, pair.astype(np.int64))


def first_words(vocabulary: Vocabulary) -> Features:
    """Vectors that words start with `[numbers, DIM]`."""
    return np.concatenate([np.zeros((2, DIM), dtype=np.float32), vectors_of(vocabulary.words)])


def _text(sentence: str) -> Features:
    """Later words weigh more, so that the order of two colours can be told."""
    words = vectors_of(tuple(split_words(sentence)))
    mixed = np.arange(1, len(words) + 1, dtype=np.float32) @ words
    return np.asarray(mixed / np.linalg.norm(mixed), dtype=np.float32)
