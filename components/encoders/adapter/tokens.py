"""Turns texts into token ids, and cuts batches after their longest text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import open_clip
import torch
from torch import Tensor

Tokens = npt.NDArray[np.int32]

_BLOCK = 1024


class Tokenizer(Protocol):
    """What turns an encoder's texts into token ids, padded on the right."""

    identity: str
    """What it is, with a hash of its content where it has any: for the sidecar and for caches of token ids."""
    context_length: int

    def __call__(self, texts: Sequence[str]) -> Tokens:
        """Token ids `[texts, context_length]`; longer texts are cut and keep their end token."""

    def lengths(self, tokens: Tokens) -> npt.NDArray[np.int64]:
        """How many tokens of each row count, `[texts]`: up to and with its end token."""

    def texts(self, tokens: Tokens) -> list[str]:
        """The texts of token ids `[texts, context_length]`, as far as these tell: without case, say, and cut."""

    def save(self, folder: Path) -> None:
        """Write the files that it cannot be made again without, if any."""


class ClipTokenizer:
    """CLIP's byte-pair tokenizer; its end token has the highest id, padding is zero."""

    identity = "clip-bpe"

    def __init__(self, context_length: int) -> None:
        self.context_length = context_length

    def __call__(self, texts: Sequence[str]) -> Tokens:
        encode = _byte_pairs(self.context_length)
        return in_blocks(texts, self.context_length, lambda block: encode(block).numpy())

    def lengths(self, tokens: Tokens) -> npt.NDArray[np.int64]:
        ends: npt.NDArray[np.int64] = tokens.argmax(axis=1).astype(np.int64)
        return ends + 1

    def texts(self, tokens: Tokens) -> list[str]:
        decode = _byte_pairs(self.context_length).decode
        ends = self.lengths(tokens) - 1
        return [decode(row[1:end]).strip() for row, end in zip(tokens.tolist(), ends.tolist(), strict=True)]

    def save(self, folder: Path) -> None:
        """Nothing to write: open_clip carries the merges."""

    def forget(self, most: int) -> None:
        """Drop the words that open_clip remembers where they are more than `most`; it would keep every word it saw."""
        byte_pairs = _byte_pairs(self.context_length)
        if len(byte_pairs.cache) > most:
            special = [byte_pairs.decoder[token] for token in byte_pairs.all_special_ids]
            byte_pairs.cache = {word: word for word in special}


def in_blocks(texts: Sequence[str], context_length: int, encode: Callable[[list[str]], Any]) -> Tokens:
    """`encode` on blocks of texts, so that a long list never has all its token ids twice; `[texts, context_length]`."""
    tokens = np.zeros((len(texts), context_length), dtype=np.int32)
    for start in range(0, len(texts), _BLOCK):
        tokens[start : start + _BLOCK] = encode(list(texts[start : start + _BLOCK]))
    return tokens


def token_lengths(texts: Sequence[str]) -> npt.NDArray[np.int64]:
    """How many of CLIP's tokens each text has before it is cut, start and end token included."""
    encode = _byte_pairs(77).encode
    return np.array([len(encode(text)) + 2 for text in texts], dtype=np.int64)


def trimmed(tokens: Tokens, lengths: npt.NDArray[np.int64]) -> Tensor:
    """Token ids cut after the longest row's last token, as int64 `[batch, longest]`.

    A causal text tower pools at the end token and cannot see behind it, a masked one does not look at padding, so
    the features stay the same.
    """
    return torch.from_numpy(tokens[:, : int(lengths.max(initial=1))].astype(np.int64))


@cache
def whole_words() -> frozenset[str]:
    """The words of three letters or more that CLIP's vocabulary holds as one token, some 30,000 frequent ones."""
    ends = (piece.removesuffix("</w>") for piece in _byte_pairs(77).encoder if piece.endswith("</w>"))
    return frozenset(word for word in ends if len(word) > 2 and word.isalpha())


@cache
def _byte_pairs(context_length: int) -> Any:
    return open_clip.SimpleTokenizer(context_length=context_length)
