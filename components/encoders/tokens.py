"""Texts to token ids, and batches no longer than they need to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import open_clip
import torch
from torch import Tensor

Tokens = npt.NDArray[np.int32]


@cache
def tokenizer(context_length: int) -> Callable[[list[str]], Tensor]:
    """CLIP's byte-pair tokenizer for texts of up to `context_length` tokens."""
    encode: Callable[[list[str]], Tensor] = open_clip.SimpleTokenizer(context_length=context_length)
    return encode


def tokenize(texts: Sequence[str], context_length: int) -> Tokens:
    """Token ids `[texts, context_length]`, zero behind the end token; longer texts are cut and keep their end token."""
    encode, block = tokenizer(context_length), 1024
    rows = [encode(list(texts[start : start + block])).numpy() for start in range(0, len(texts), block)]
    return np.concatenate(rows).astype(np.int32) if rows else np.zeros((0, context_length), np.int32)


def token_lengths(texts: Sequence[str]) -> npt.NDArray[np.int64]:
    """How many tokens each text has before it is cut, start and end token included."""
    encode = tokenizer(77).encode  # type: ignore[attr-defined]
    return np.array([len(encode(text)) + 2 for text in texts], dtype=np.int64)


def trimmed(tokens: Tokens) -> Tensor:
    """A batch cut after its longest text's end token, as int64 `[batch, longest]`.

    A causal text tower pools at the end token and cannot see behind it, so the features stay the same.
    """
    longest = int((tokens.argmax(axis=1)).max()) + 1
    return torch.from_numpy(tokens[:, :longest].astype(np.int64))
