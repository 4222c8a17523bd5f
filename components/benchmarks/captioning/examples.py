"""Pairs as a captioner takes them: tokens of the pictures, features and words of the sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from components.benchmarks.captioning.pairs import PicturePair, Vocabulary
from components.benchmarks.encoding.context import ImageEncoder
from components.benchmarks.encoding.pictures import Picture
from components.benchmarks.encoding.published_context import PublishedContext
from components.core.files import content_hash
from components.core.metrics import Features, Indices
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import normalise

GRID = 4
"""Places along a side: a tower with more patches has them averaged, so that all keep 17 vectors of a picture."""


def picture_tokens(context: PublishedContext, pictures: Sequence[Picture]) -> Features:
    """Tokens `[pictures, tokens, dim]`: the unit feature, then that of each place, row by row.

    They go through the cache of image features like these. A tower that gives no feature of a place has one token.

    Raises:
        InputError: the encoder has no image tower, or a picture cannot be decoded.
    """
    under_test = context.under_test
    encoder = under_test.encoder
    if under_test.image_tower_sha256 is None or not isinstance(encoder, Encoder) or not sees_places(encoder.model):
        return np.asarray(context.images(pictures))[:, np.newaxis]
    tower = content_hash(under_test.image_tower_sha256, f"{GRID} by {GRID} places")
    seeing = replace(under_test, encoder=_Places(encoder), image_tower_sha256=tower)
    flat = np.asarray(context.image_features.of(seeing, pictures, "embed places"))
    return flat.reshape(len(pictures), -1, encoder.sidecar.embed_dim)


def sees_places(model: Any) -> bool:
    """Whether the image tower is a vision transformer of open_clip, whose patches are mapped as its feature is."""
    return isinstance(getattr(model.visual, "proj", None), nn.Parameter) and hasattr(
        model.visual, "forward_intermediates"
    )


@dataclass(frozen=True)
class _Places(ImageEncoder):
    """An encoder whose vector of a picture is all of its tokens, one after the other."""

    encoder: Encoder

    def embed_texts(self, texts: Sequence[str], batch_size: int = 256, title: str | None = None) -> Features:
        return self.encoder.embed_texts(texts, batch_size, title)

    @torch.inference_mode()
    def embed_pixels(self, pixels: Tensor) -> Features:
        """Tokens `[pictures, tokens * dim]` of pixels `[pictures, 3, size, size]`."""
        tower = self.encoder.model.visual
        with self.encoder.mixed():
            found = tower.forward_intermediates(
                pixels if pixels.is_floating_point() else normalise(pixels),
                indices=1,
                normalize_intermediates=True,
                output_fmt="NCHW",
            )
        places = found["image_intermediates"][-1].float()
        side = min(GRID, *places.shape[-2:])
        places = nn.functional.adaptive_avg_pool2d(places, side).flatten(2).transpose(1, 2) @ tower.proj.float()
        whole = nn.functional.normalize(found["image_features"].float(), dim=-1)
        vectors: Features = torch.cat([whole[:, None], places], dim=1).flatten(1).cpu().numpy()
        return vectors


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
