"""A loaded version of a model: embeds texts and counts their tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from components.core.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.tokens import ClipTokenizer, Tokenizer, Tokens
from components.registry.encoder_lookup import find_encoder
from components.registry.encoder_names import ALIAS
from components.serving.alias import Alias
from components.serving.answer import Answer
from components.serving.errors import Refusal
from components.serving.question import Question

_MOST_WORDS = 100_000
"""Words that a tokenizer may remember: a tenth of a second is needed for as many again."""
_PROBE = ["a dog", "two cats sleep on a red sofa beside the window"]


class Embedded(NamedTuple):
    """A text's unit vector `[dim]` and how many tokens it has."""

    vector: npt.NDArray[np.float32]
    tokens: int


class CountingTokenizer:
    """A tokenizer that remembers how long the texts were that it was asked about last, so that none is read twice."""

    def __init__(self, inner: Tokenizer) -> None:
        self._inner = inner
        self.identity, self.context_length = inner.identity, inner.context_length
        self.counts: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    def __call__(self, texts: Sequence[str]) -> Tokens:
        return self._inner(texts)

    def lengths(self, tokens: Tokens) -> npt.NDArray[np.int64]:
        self.counts = self._inner.lengths(tokens)
        return self.counts

    def texts(self, tokens: Tokens) -> list[str]:
        return self._inner.texts(tokens)

    def save(self, folder: Path) -> None:
        """Write the tokenizer's files."""
        self._inner.save(folder)

    def forget(self) -> None:
        """Drop words where clients sent too many different ones."""
        if isinstance(self._inner, ClipTokenizer):
            self._inner.forget(_MOST_WORDS)


@dataclass(frozen=True)
class Served:
    """A version of a model. One thread at a time may ask it.

    Attributes:
        id: what answers call it: `text-encoder/3`, or an encoder's name.
        names: what clients may call it.
        sha256: hash of its weights.
        image_tower_sha256: hash of the image tower that its vectors fit.
        dim: numbers of a vector.
        embed_new: unit vectors `[texts, dim]` and tokens `[texts]` of texts.
        cache: vectors of the texts that were asked about last, if any are kept.
    """

    id: str
    names: frozenset[str]
    sha256: str
    image_tower_sha256: str
    dim: int
    embed_new: Callable[[list[str]], tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]]
    cache: LRUCache[str, Embedded] | None

    def refusal(self, question: Question) -> Refusal | None:
        """Why this version cannot answer a question that has passed all limits, if it cannot."""
        if question.model is not None and question.model not in self.names:
            told = f"The model '{question.model[:100]}' is not served: GET /v1/models lists what is."
            return Refusal(404, told, "model_not_found", "model")
        if question.dimensions is not None and question.dimensions != self.dim:
            told = f"'dimensions' must be {self.dim}, or left out."
            return Refusal(400, told, "invalid_value", "dimensions")
        return None

    def answers(self, questions: Sequence[Question]) -> list[Answer]:
        """What it says of the texts of several requests; each different text is computed once."""
        found = self._embed([text for question in questions for text in question.texts])
        return [
            Answer(self.id, [found[text].vector for text in one.texts], sum(found[text].tokens for text in one.texts))
            for one in questions
        ]

    def _embed(self, texts: Sequence[str]) -> dict[str, Embedded]:
        different = dict.fromkeys(texts)
        kept = {} if self.cache is None else {text: self.cache[text] for text in different if text in self.cache}
        new = [text for text in different if text not in kept]
        if not new:
            return kept
        vectors, counts = self.embed_new(new)
        # A copy of each row, or one text in the cache would keep the vectors of its whole batch.
        made = {text: Embedded(vectors[row].copy(), int(counts[row])) for row, text in enumerate(new)}
        if self.cache is not None:
            self.cache.update(made)
        return kept | made


def load(name: str, also: frozenset[str] = frozenset(), cache: int = 0) -> Served:
    """Load an encoder and try it.

    Args:
        name: see `cliptune evaluate --encoder`.
        also: other names that clients may call it by.
        cache: texts whose vectors are kept.

    Raises:
        InputError: it cannot be loaded, has no image tower, or gives vectors that are none.
    """
    found = find_encoder(name)
    if not isinstance(found.encoder, Encoder):
        raise InputError(f"--encoder '{name}' has no image tower that its vectors fit: give an image-text encoder")
    vectors = found.encoder.embed_texts(_PROBE)
    if not np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3):
        raise InputError(f"{name} does not give unit vectors: train it again")
    # A folder's path is nobody's business but this machine's.
    called = name if name in also else found.name
    return Served(
        id=called,
        names=also | {called},
        sha256=found.sha256,
        image_tower_sha256=found.image_tower_sha256 or "",
        dim=vectors.shape[1],
        embed_new=_embedder(found.encoder),
        cache=LRUCache(cache) if cache else None,
    )


def load_version(alias: Alias, version: str, cache: int) -> Served:
    """A version of a registered model, which answers to the names of its alias too.

    Raises:
        InputError: it cannot be loaded.
    """
    name = f"{alias.model}/{version}"
    return load(name, frozenset({name, alias.model, f"{alias.model}@{alias.alias}"}), cache)


def load_first(name: str, cache: int) -> Served:
    """The encoder that a server starts with.

    Raises:
        InputError: there is none behind `name`.
    """
    alias = Alias.of(name)
    if alias is not None:
        version = alias.version()
        if version is None:
            raise alias.missing()
        return load_version(alias, version, cache)
    registered = ALIAS.match(name)
    if registered is None:
        return load(name, cache=cache)
    model, version = registered["model"], registered["version"]
    return load(f"{model}/{version}", frozenset({model, f"{model}/{version}"}), cache)


def _embedder(
    encoder: Encoder,
) -> Callable[[list[str]], tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]]:
    counting = CountingTokenizer(encoder.tokenizer)
    encoder = replace(encoder, tokenizer=counting)

    def embed(texts: list[str]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        vectors = encoder.embed_texts(texts)
        counting.forget()
        return vectors, counting.counts

    return embed
