"""CLIP4IDC on frozen features: an encoder of pairs and a decoder of sentences, and their inputs (Guo et al. 2022).

In the paper the last layers of CLIP's image tower process both images together and are fine-tuned; here a small
transformer on top of the frozen tower does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from components.benchmarks.scoring.encoding.context import ImageEncoder
from components.benchmarks.scoring.encoding.published_context import PublishedContext
from components.core.compute.metrics import Features, Indices
from components.core.tables.files import content_hash
from components.encoders.adapter.encoder import Encoder
from components.experiments.parts.captioned_pairs import EDGE, MAX_WORDS, PicturePair, Vocabulary
from components.test_sets.pictures import LazyPicture

LAYERS = 2
DROPOUT = 0.1
_SMALL = 0.02
"""Deviation of random initial weights, as in BERT."""
_LOG_SCALE = math.log(1 / 0.07)
"""Initial scale of similarities before InfoNCE, as in CLIP."""


class PairEncoder(nn.Module):
    """Both pictures of a pair as one embedding in the space of texts, and as tokens for the decoder.

    Initially the embedding is the feature of the second picture less that of the first, which PC-CLIP aligns with
    differences of texts; attention over both pictures is learned on top of it. Texts have a separate matrix, initially
    the identity, where the paper fine-tunes the text tower.

    Args:
        tokens: of one picture.
        dim: of a token.
    """

    def __init__(self, tokens: int, dim: int) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(tokens, dim) * _SMALL)
        self.which = nn.Parameter(torch.randn(2, 1, dim) * _SMALL)
        self.enter = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim))
        layer = nn.TransformerEncoderLayer(
            dim, _heads(dim), 4 * dim, DROPOUT, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(dim), enable_nested_tensor=False)
        self.attended = nn.Linear(dim, dim)
        nn.init.zeros_(self.attended.weight)
        nn.init.zeros_(self.attended.bias)
        self.difference = nn.Linear(2 * dim, dim, bias=False)
        with torch.no_grad():
            self.difference.weight.copy_(torch.cat([-torch.eye(dim), torch.eye(dim)], dim=1))
        self.text = nn.Linear(dim, dim, bias=False)
        nn.init.eye_(self.text.weight)
        self.log_scale = nn.Parameter(torch.tensor(_LOG_SCALE))

    def texts(self, features: Tensor) -> Tensor:
        """Unit embeddings `[texts, dim]` of the text tower's features `[texts, dim]`."""
        return nn.functional.normalize(self.text(features), dim=-1)

    def forward(self, before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
        """Visual tokens `[pairs, 2 * tokens, dim]` and unit embeddings `[pairs, dim]`.

        Args:
            before, after: tokens of the pictures `[pairs, tokens, dim]`, that of the whole picture first.
        """
        first, second = (self.enter(one) + self.places + self.which[row] for row, one in enumerate((before, after)))
        seen: Tensor = self.layers(torch.cat([first, second], dim=1))
        wholes = torch.stack([before[:, 0], after[:, 0]], dim=1)
        wholes = wholes + self.attended(seen[:, [0, before.shape[1]]])
        embedding = self.difference(wholes.flatten(1))
        return seen, nn.functional.normalize(embedding, dim=-1)


class SentenceDecoder(nn.Module):
    """Sentences word by word, each from the words before it and the visual tokens of a pair.

    `words` are initial vectors `[numbers, dim]`, for input and output.
    """

    def __init__(self, words: Tensor) -> None:
        super().__init__()
        dim = words.shape[1]
        self.words = nn.Embedding(words.shape[0], dim, _weight=words)
        self.places = nn.Parameter(torch.randn(MAX_WORDS + 1, dim) * _SMALL)
        layer = nn.TransformerDecoderLayer(
            dim, _heads(dim), 4 * dim, DROPOUT, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerDecoder(layer, LAYERS, nn.LayerNorm(dim))
        self.frequent = nn.Parameter(torch.zeros(len(words)))

    def forward(self, seen: Tensor, written: Tensor) -> Tensor:
        """Scores of the next word after each place `[pairs, places, numbers]`.

        Args:
            seen: visual tokens `[pairs, 2 * tokens, dim]`.
            written: numbers of the words so far, the first being `EDGE`, `[pairs, places]`.
        """
        length = written.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=written.device).triu(1)
        states = self.layers(self.words(written) + self.places[:length], seen, tgt_mask=later, tgt_is_causal=True)
        scores: Tensor = states @ self.words.weight.T + self.frequent
        return scores

    @torch.inference_mode()
    def greedy(self, seen: Tensor) -> Tensor:
        """Numbers of the likeliest next words, one after the other, `[pairs, MAX_WORDS or fewer]`."""
        written = torch.full((len(seen), 1), EDGE, device=seen.device)
        ended = torch.zeros(len(seen), dtype=torch.bool, device=seen.device)
        while written.shape[1] <= MAX_WORDS and not ended.all():
            # PAD is not a word and never a target, so its score is meaningless.
            following = self(seen, written)[:, -1, EDGE:].argmax(dim=-1) + EDGE
            written = torch.cat([written, following[:, None]], dim=1)
            ended |= following == EDGE
        return written[:, 1:]


def _heads(dim: int) -> int:
    """64 dimensions per head as in CLIP, but at least four heads if they divide `dim`."""
    return next(heads for heads in (max(dim // 64, 4), 4, 2, 1) if dim % heads == 0)


GRID = 4
"""Places along a side: more patches are averaged, so that every tower has at most 17 vectors of a picture."""


def picture_tokens(context: PublishedContext, pictures: Sequence[LazyPicture]) -> Features:
    """Tokens `[pictures, tokens, dim]`: the unit feature, then that of each place, row by row.

    Tokens are cached like image features. A tower without features of places has one token.
    """
    under_test = context.under_test
    encoder = under_test.encoder
    if under_test.image_tower_sha256 is None or not isinstance(encoder, Encoder) or not has_places(encoder.model):
        return np.asarray(context.images(pictures))[:, np.newaxis]
    tower = content_hash(under_test.image_tower_sha256, f"{GRID} by {GRID} places")
    with_places = replace(under_test, encoder=_Places(encoder), image_tower_sha256=tower)
    flat = np.asarray(context.image_features.of(with_places, pictures, "embed places"))
    return flat.reshape(len(pictures), -1, encoder.sidecar.embed_dim)


def has_places(model: Any) -> bool:
    """Whether the image tower is a vision transformer of open_clip, whose patches are projected like its feature."""
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
            outputs = tower.forward_intermediates(
                pixels if pixels.is_floating_point() else self.encoder.sidecar.preparation.normalise(pixels),
                indices=1,
                normalize_intermediates=True,
                output_fmt="NCHW",
            )
        places = outputs["image_intermediates"][-1].float()
        side = min(GRID, *places.shape[-2:])
        places = nn.functional.adaptive_avg_pool2d(places, side).flatten(2).transpose(1, 2) @ tower.proj.float()
        whole = nn.functional.normalize(outputs["image_features"].float(), dim=-1)
        vectors: Features = torch.cat([whole[:, None], places], dim=1).flatten(1).cpu().numpy()
        return vectors


@dataclass(frozen=True)
class CaptionedPairs:
    """Pairs with their sentences, those of a pair one after the other.

    Pictures are tokens `[pairs, tokens, dim]`, `features` those of the sentences `[sentences, dim]`, and `pair` is the
    pair that each sentence is about `[sentences]`.
    """

    before: Features
    after: Features
    sentences: tuple[str, ...]
    features: Features
    pair: Indices

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.before)

    def tokens(self, rows: Indices, device: str) -> tuple[Tensor, Tensor]:
        """Tokens of the pairs `rows`, both `[rows, tokens, dim]`."""
        before, after = (torch.from_numpy(np.array(one[rows])).to(device) for one in (self.before, self.after))
        return before, after

    def one_each(self, generator: np.random.Generator | None) -> Indices:
        """A random sentence of each pair `[pairs]`, or the first without a generator; every pair must have one."""
        first = np.searchsorted(self.pair, np.arange(len(self)))
        if generator is None:
            return first.astype(np.int64)
        counts = np.bincount(self.pair, minlength=len(self))
        return (first + (generator.random(len(self)) * counts).astype(np.int64)).astype(np.int64)


def captioned_pairs(context: PublishedContext, pairs: Sequence[PicturePair]) -> CaptionedPairs:
    """The encoder's features of `pairs`."""
    tokens = picture_tokens(context, [picture for pair in pairs for picture in (pair.before, pair.after)])
    sentences = tuple(sentence for pair in pairs for sentence in pair.sentences)
    numbers = np.repeat(np.arange(len(pairs)), [len(pair.sentences) for pair in pairs])
    return CaptionedPairs(tokens[0::2], tokens[1::2], sentences, context.texts(sentences), numbers.astype(np.int64))


def first_vectors(context: PublishedContext, vocabulary: Vocabulary) -> Features:
    """Initial vectors `[numbers, dim]` of words: the text tower's feature of each, and zeros for other numbers.

    CLIP4IDC starts from CLIP's token embeddings, which only some text towers have.
    """
    words = np.asarray(context.texts(vocabulary.words), dtype=np.float32)
    return np.concatenate([np.zeros((len(vocabulary) - len(words), words.shape[1]), dtype=np.float32), words])
