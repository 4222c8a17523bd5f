"""Features of a benchmark's texts, each text embedded once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from components.core.errors import InputError
from components.core.metrics import Features
from components.encoders.embeddings import non_finite_row


class TextEncoder(Protocol):
    """The part of an encoder that benchmarks use."""

    def embed_texts(self, texts: Sequence[str], batch_size: int = ..., title: str | None = ...) -> Features:
        """Unit vectors `[texts, dim]`."""


def embed_new(encoder: TextEncoder, texts: Sequence[str], known: dict[str, Features]) -> Features:
    """Unit features `[texts, dim]`; texts that `known` lacks are embedded, each once, and kept in it.

    Raises:
        InputError: the encoder returns a non-finite feature.
    """
    new = list(dict.fromkeys(text for text in texts if text not in known))
    if new:
        features = encoder.embed_texts(new, title="embed texts")
        bad = non_finite_row(features)
        if bad is not None:
            raise InputError(f"the encoder gives '{new[bad]}' a non-finite feature: train it again")
        known.update(zip(new, features, strict=True))
    return np.stack([known[text] for text in texts])
