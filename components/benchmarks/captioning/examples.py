"""Pairs as a captioner takes them: tokens of the pictures, features and words of the sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from components.benchmarks.captioning.pairs import PicturePair
from components.benchmarks.captioning.picture_tokens import picture_tokens
from components.benchmarks.captioning.words import Vocabulary
from components.benchmarks.encoding.published_context import PublishedContext
from components.core.metrics import Features, Indices


@dataclass(frozen=True)
class Examples:
    """Pairs with their sentences, those of a pair one after the other.

    Attributes:
        before, after: tokens of the pictures `[pairs, tokens, dim]`.
        sentences: all sentences.
        features: their unit features `[sentences, dim]`.
        pair: the pair that each is about `[sentences]`.
    """

    before: Features
    after: Features
    sentences: tuple[str, ...]
    features: Features
    pair: Indices

    def __len__(self) -> int:
        """Pairs that there are."""
        return len(self.before)

    def seen(self, rows: Indices, device: str) -> tuple[Tensor, Tensor]:
        """Tokens of the pairs `rows`, both `[rows, tokens, dim]`."""
        before, after = (torch.from_numpy(np.array(one[rows])).to(device) for one in (self.before, self.after))
        return before, after

    def one_each(self, generator: np.random.Generator | None) -> Indices:
        """A sentence of each pair `[pairs]`, drawn, or the first where there is no generator; all pairs have one."""
        first = np.searchsorted(self.pair, np.arange(len(self)))
        if generator is None:
            return first.astype(np.int64)
        counts = np.bincount(self.pair, minlength=len(self))
        return (first + (generator.random(len(self)) * counts).astype(np.int64)).astype(np.int64)


def examples(context: PublishedContext, pairs: Sequence[PicturePair]) -> Examples:
    """Everything that the encoder says of `pairs`.

    Raises:
        InputError: the encoder has no image tower, a picture cannot be decoded, or a feature is not finite.
    """
    tokens = picture_tokens(context, [picture for pair in pairs for picture in (pair.before, pair.after)])
    sentences = tuple(sentence for pair in pairs for sentence in pair.sentences)
    numbers = np.repeat(np.arange(len(pairs)), [len(pair.sentences) for pair in pairs])
    return Examples(tokens[0::2], tokens[1::2], sentences, context.texts(sentences), numbers.astype(np.int64))


def first_vectors(context: PublishedContext, vocabulary: Vocabulary) -> Features:
    """Vectors `[numbers, dim]` that words start with: the text tower's feature of each, and zeros for what is no word.

    CLIP4IDC starts from CLIP's token embeddings, which only some text towers have.
    """
    words = np.asarray(context.texts(vocabulary.words), dtype=np.float32)
    return np.concatenate([np.zeros((len(vocabulary) - len(words), words.shape[1]), dtype=np.float32), words])
