"""Loads the encoder or registered version to serve; a loaded version embeds texts and counts their tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from components.core.system.errors import InputError
from components.core.tracking import explained, make_client, nothing_tracked
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.precision import Precision
from components.encoders.adapter.tokens import ClipTokenizer, Tokenizer, Tokens
from components.encoders.excluding import combined, parts_of
from components.registry.encoder_lookup import find_encoder
from components.registry.encoder_names import ALIAS
from components.registry.model import find_alias
from components.serving.server.messages import ApiError, EmbeddingRequest, EncodeResponse

_MOST_WORDS = 100_000
"""Words in a tokenizer's cache; tokenizing them takes a tenth of a second."""


class TextVector(NamedTuple):
    """A text's unit vector `[dim]` and its number of tokens."""

    vector: npt.NDArray[np.float32]
    tokens: int


class TextTokens(NamedTuple):
    """A text's token ids `[context_length]`, and how many of them the tower needs."""

    ids: Tokens
    length: int


@dataclass(frozen=True)
class Served:
    """A loaded version of a model; one thread may tokenize while one other embeds.

    Attributes:
        id: its name in responses: `text-encoder/3`, or an encoder's name.
        names: its names in requests.
        precision: of its text tower; see `Encoder.compute_in`.
        tokenizer: texts to their tokens.
        tower: token ids `[texts, context_length]` to unit vectors `[texts, dim]`.
        excludes: whether texts such as `a street -people` exclude something.
    """

    id: str
    names: frozenset[str]
    sha256: str
    image_tower_sha256: str
    dim: int
    precision: Precision
    tokenizer: Callable[[list[str]], list[TextTokens]]
    tower: Callable[[Tokens], npt.NDArray[np.float32]]
    cache: LRUCache[str, TextVector] | None
    excludes: bool = False

    def unsupported(self, request: EmbeddingRequest) -> ApiError | None:
        """The reason why this version does not support a request, None if it does."""
        if request.model is not None and request.model not in self.names:
            message = f"The model '{request.model[:100]}' is not served: GET /v1/models lists the names."
            return ApiError(404, message, "model_not_found", "model")
        if request.dimensions is not None and request.dimensions != self.dim:
            message = f"'dimensions' must be {self.dim}, or left out."
            return ApiError(400, message, "invalid_value", "dimensions")
        return None

    def tokens(self, request: EmbeddingRequest) -> dict[str, TextTokens]:
        """The tokens of a request's texts whose vectors are not cached."""
        parts = dict.fromkeys(part for text in request.texts for part in self._parts(text))
        new = [text for text in parts if self.cache is None or text not in self.cache]
        return dict(zip(new, self.tokenizer(new), strict=True)) if new else {}

    def embed(self, requests: Sequence[EmbeddingRequest], tokens: Mapping[str, TextTokens]) -> list[EncodeResponse]:
        """Responses to several requests; equal texts are embedded once.

        Args:
            tokens: of the requests' texts; those of missing ones are made here.
        """
        texts = dict.fromkeys(text for request in requests for text in request.texts)
        parts = {text: self._parts(text) for text in texts}
        embedded = self._embed([part for each in parts.values() for part in each], tokens)
        responses = []
        for request in requests:
            vectors = [combined([embedded[part].vector for part in parts[text]]) for text in request.texts]
            counts = sum(embedded[part].tokens for text in request.texts for part in parts[text])
            responses.append(EncodeResponse(self.id, vectors, counts))
        return responses

    def _parts(self, text: str) -> list[str]:
        return parts_of(text) if self.excludes else [text]

    def _embed(self, texts: Sequence[str], tokens: Mapping[str, TextTokens]) -> dict[str, TextVector]:
        unique = dict.fromkeys(texts)
        cached = {} if self.cache is None else {text: self.cache[text] for text in unique if text in self.cache}
        new = [text for text in unique if text not in cached]
        if not new:
            return cached
        # A text may have left the cache since the request was tokenized.
        if missing := [text for text in new if text not in tokens]:
            tokens = {**tokens, **dict(zip(missing, self.tokenizer(missing), strict=True))}
        vectors = self.tower(np.stack([tokens[text].ids for text in new]))
        # A copy of each row, or one cached text would keep the vectors of its whole batch in memory.
        embedded = {text: TextVector(vectors[row].copy(), tokens[text].length) for row, text in enumerate(new)}
        if self.cache is not None:
            self.cache.update(embedded)
        return cached | embedded


@dataclass(frozen=True)
class Alias:
    """A registered model and one of its aliases, such as `text-encoder` and `champion`."""

    model: str
    alias: str

    @staticmethod
    def of(name: str) -> Alias | None:
        """The alias in an encoder's name, None if it has another form."""
        matched = ALIAS.match(name)
        return Alias(matched["model"], matched["alias"]) if matched and matched["alias"] else None

    @explained()
    def version(self) -> str | None:
        """The version that it points at, None if it does not exist."""
        version = None if nothing_tracked() else find_alias(make_client(), self.model, self.alias)
        return None if version is None else str(version.version)


@dataclass(frozen=True)
class Loading:
    """How versions are loaded.

    Attributes:
        cache: texts whose vectors are cached, least recently used first out; 0 for no cache.
        precision: of the text tower; see `Encoder.compute_in`.
        excludes: see `Served`.
    """

    cache: int = 0
    precision: Precision = "fp32"
    device: str = "auto"
    excludes: bool = False

    def first(self, name: str) -> Served:
        """The version to serve when the server starts."""
        alias = Alias.of(name)
        if alias is not None:
            version = alias.version()
            if version is None:
                raise InputError(f"{alias.model} has no alias '{alias.alias}': `cliptune history` lists the promotions")
            return self.version(alias, version)
        registered = ALIAS.match(name)
        if registered is None:
            return self.load(name)
        model, version = registered["model"], registered["version"]
        return self.load(f"{model}/{version}", frozenset({model, f"{model}/{version}"}))

    def version(self, alias: Alias, version: str) -> Served:
        """A version of a registered model, which also has the names of its alias."""
        name = f"{alias.model}/{version}"
        return self.load(name, frozenset({name, alias.model, f"{alias.model}@{alias.alias}"}))

    def load(self, name: str, also: frozenset[str] = frozenset()) -> Served:
        """Load an encoder, which requests may also name by `also`, and embed two texts as a test."""
        under_test = find_encoder(name, device=self.device)
        encoder = under_test.encoder
        if not isinstance(encoder, Encoder):
            raise InputError(f"--encoder '{name}' has no image tower that its vectors fit: give an image-text encoder")
        encoder.compute_in(self.precision)
        vectors = encoder.embed_texts(["a dog", "two cats sleep on a red sofa beside the window"])
        if not np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3):
            raise InputError(f"{name} does not give unit vectors: train it again")
        # Clients must not see the path of a folder on this machine.
        public_name = name if name in also else under_test.name
        return Served(
            id=public_name,
            names=also | {public_name},
            sha256=under_test.sha256,
            image_tower_sha256=under_test.image_tower_sha256 or "",
            dim=vectors.shape[1],
            precision=self.precision,
            tokenizer=partial(_tokenized, encoder.tokenizer),
            tower=encoder.embed_tokens,
            cache=LRUCache(self.cache) if self.cache else None,
            excludes=self.excludes,
        )


def _tokenized(tokenizer: Tokenizer, texts: list[str]) -> list[TextTokens]:
    ids = tokenizer(texts)
    if isinstance(tokenizer, ClipTokenizer):
        # Clients may send any number of different words.
        tokenizer.forget(_MOST_WORDS)
    return [TextTokens(row, length) for row, length in zip(ids, tokenizer.lengths(ids).tolist(), strict=True)]
