"""CLIP4IDC on frozen towers: pairs of pictures are found by sentences, then described (Guo et al. 2022).

In the paper the last layers of CLIP's image tower see both pictures and are fine-tuned; here a transformer of two
layers on top of the frozen tower does. Both stages use AdamW over shuffled pairs, with a random sentence of each pair
in every epoch, and keep the epoch with the lowest validation loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from more_itertools import chunked
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR

from components.core.compute.metrics import Features, Indices
from components.core.system.progress import bar
from components.core.tables.files import content_hash
from components.data.test_sets.files import LazyPicture
from components.encoders.adapter.encoder import Encoder
from components.evaluation.scoring.published_context import PublishedContext
from research.experiments.parts.sentences import EDGE, MAX_WORDS, PAD, PicturePair, Vocabulary

LAYERS, DROPOUT = 2, 0.1
GRID = 4
"""Places along a side: more patches are averaged, so that a picture has at most 17 vectors."""
_SMALL = 0.02
"""Deviation of random initial weights, as in BERT."""
_SCALE, _MAX_SCALE = 1 / 0.07, 100.0
"""Scale of similarities before the loss: its start and its limit, as in CLIP."""
_BLOCK = 128
"""Pairs that are embedded or described at once."""


@dataclass(frozen=True)
class StageSettings:
    """`lr` is the highest rate for 128 dimensions and fewer, lower in proportion for more; warm-up, then a cosine."""

    title: str
    epochs: int
    batch: int
    lr: float


RETRIEVAL = StageSettings("learn to retrieve differences", epochs=20, batch=128, lr=2e-3)
"""Epochs and batch are those of CLIP4IDC on Spot-the-Difference."""
WRITING = StageSettings("learn to write differences", epochs=20, batch=64, lr=1e-3)


class PairEncoder(nn.Module):
    """Both pictures of a pair as one embedding in the space of texts, and as tokens for the decoder.

    At first the embedding is the second picture's feature less the first's, which PC-CLIP aligns with differences of
    texts; attention over both is learned on top. Texts have a matrix of their own, at first the identity, where the
    paper fine-tunes the text tower. A picture has `tokens` of width `dim`.
    """

    def __init__(self, tokens: int, dim: int) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(tokens, dim) * _SMALL)
        self.which = nn.Parameter(torch.randn(2, 1, dim) * _SMALL)
        self.enter = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim))
        layer = nn.TransformerEncoderLayer(dim, **_layer(dim))
        self.layers = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(dim), enable_nested_tensor=False)
        self.attended, self.text = nn.Linear(dim, dim), nn.Linear(dim, dim, bias=False)
        self.difference = nn.Linear(2 * dim, dim, bias=False)
        self.log_scale = nn.Parameter(torch.tensor(math.log(_SCALE)))
        nn.init.zeros_(self.attended.weight)
        nn.init.zeros_(self.attended.bias)
        nn.init.eye_(self.text.weight)
        with torch.no_grad():
            self.difference.weight.copy_(torch.cat([-torch.eye(dim), torch.eye(dim)], dim=1))

    def texts(self, features: Tensor) -> Tensor:
        """Unit embeddings `[texts, dim]` of the text tower's features `[texts, dim]`."""
        return nn.functional.normalize(self.text(features), dim=-1)

    def forward(self, before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
        """Visual tokens `[pairs, 2 * tokens, dim]` and unit embeddings `[pairs, dim]`.

        `before` and `after` are tokens of the pictures `[pairs, tokens, dim]`, that of the whole picture first.
        """
        first, second = (self.enter(one) + self.places + self.which[row] for row, one in enumerate((before, after)))
        seen: Tensor = self.layers(torch.cat([first, second], dim=1))
        wholes = torch.stack([before[:, 0], after[:, 0]], dim=1)
        wholes = wholes + self.attended(seen[:, [0, before.shape[1]]])
        return seen, nn.functional.normalize(self.difference(wholes.flatten(1)), dim=-1)


class SentenceDecoder(nn.Module):
    """Sentences word by word; `words` are the initial vectors `[numbers, dim]`, for input and output."""

    def __init__(self, words: Tensor) -> None:
        super().__init__()
        dim = words.shape[1]
        self.words = nn.Embedding(len(words), dim, _weight=words)
        self.places = nn.Parameter(torch.randn(MAX_WORDS + 1, dim) * _SMALL)
        layer = nn.TransformerDecoderLayer(dim, **_layer(dim))
        self.layers = nn.TransformerDecoder(layer, LAYERS, nn.LayerNorm(dim))
        self.frequent = nn.Parameter(torch.zeros(len(words)))

    def forward(self, seen: Tensor, written: Tensor) -> Tensor:
        """Scores of the next word after each place `[pairs, places, numbers]`.

        `seen` are visual tokens `[pairs, 2 * tokens, dim]`, `written` the numbers so far, `EDGE` first.
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
        while written.shape[1] <= MAX_WORDS and not (written[:, 1:] == EDGE).any(dim=1).all():
            # PAD is not a word and never a target, so its score is meaningless.
            following = self(seen, written)[:, -1, EDGE:].argmax(dim=-1) + EDGE
            written = torch.cat([written, following[:, None]], dim=1)
        return written[:, 1:]


def _layer(dim: int) -> dict[str, Any]:
    """Settings of a transformer's layer: 64 dimensions a head as in CLIP, but at least four heads if they fit."""
    heads = next(heads for heads in (max(dim // 64, 4), 4, 2, 1) if dim % heads == 0)
    sizes = {"nhead": heads, "dim_feedforward": 4 * dim, "dropout": DROPOUT}
    return {**sizes, "activation": "gelu", "batch_first": True, "norm_first": True}


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

    @staticmethod
    def of(context: PublishedContext, pairs: Sequence[PicturePair]) -> CaptionedPairs:
        """The encoder's features of `pairs`."""
        tokens = picture_tokens(context, [picture for before, after, _ in pairs for picture in (before, after)])
        sentences = tuple(sentence for *_, listed in pairs for sentence in listed)
        numbers = np.repeat(np.arange(len(pairs), dtype=np.int64), [len(listed) for *_, listed in pairs])
        return CaptionedPairs(tokens[0::2], tokens[1::2], sentences, context.texts(sentences), numbers)

    def tokens(self, rows: Indices, device: str) -> tuple[Tensor, Tensor]:
        """Tokens of the pairs `rows`, both `[rows, tokens, dim]`."""
        return _tensor(self.before[rows], device), _tensor(self.after[rows], device)

    def blocks(self) -> list[Indices]:
        """The numbers of all pairs, a block at a time."""
        return [np.array(rows) for rows in chunked(range(len(self.before)), _BLOCK)]

    def one_each(self, generator: np.random.Generator | None = None) -> Indices:
        """A random sentence of each pair `[pairs]`, or the first without a generator; every pair must have one."""
        counts = np.bincount(self.pair, minlength=len(self.before))
        drawn = np.zeros(len(counts)) if generator is None else generator.random(len(counts))
        return np.searchsorted(self.pair, np.arange(len(counts))) + (drawn * counts).astype(np.int64)


Loss = Callable[[CaptionedPairs, Indices, Indices], Tensor]
"""The loss of some pairs of a split with one sentence of each, given by their numbers, both `[batch]`."""


def picture_tokens(context: PublishedContext, pictures: Sequence[LazyPicture]) -> Features:
    """Tokens `[pictures, tokens, dim]`: the unit feature, then that of each place; only the feature of other towers.

    They are cached like image features. Places are those of open_clip's vision transformers.
    """
    tested, encoder = context.under_test, context.under_test.encoder
    if tested.image_tower_sha256 is None or not isinstance(encoder, Encoder) or not _has_places(encoder.model.visual):
        return np.asarray(context.images(pictures))[:, np.newaxis]
    tower = content_hash(tested.image_tower_sha256, f"{GRID} by {GRID} places")
    # A picture's vector is all of its tokens, one after the other.
    places: Any = SimpleNamespace(embed_texts=encoder.embed_texts, embed_pixels=partial(_pixel_tokens, encoder))
    with_places = replace(tested, encoder=places, image_tower_sha256=tower)
    flat = np.asarray(context.image_features.of(with_places, pictures))
    return flat.reshape(len(pictures), -1, encoder.sidecar.embed_dim)


def _has_places(visual: Any) -> bool:
    return isinstance(getattr(visual, "proj", None), nn.Parameter) and hasattr(visual, "forward_intermediates")


@torch.inference_mode()
def _pixel_tokens(encoder: Encoder, pixels: Tensor) -> Features:
    """Tokens `[pictures, tokens * dim]` of pixels `[pictures, 3, size, size]`."""
    tower, prepared = encoder.model.visual, encoder.sidecar.preparation.normalise(pixels.to(encoder.device))
    with encoder.mixed():
        outputs = tower.forward_intermediates(prepared, indices=1, normalize_intermediates=True, output_fmt="NCHW")
    places = outputs["image_intermediates"][-1].float()
    places = nn.functional.adaptive_avg_pool2d(places, min(GRID, *places.shape[-2:])).flatten(2)
    whole = nn.functional.normalize(outputs["image_features"].float(), dim=-1)
    tokens = torch.cat([whole[:, None], places.transpose(1, 2) @ tower.proj.float()], dim=1)
    return np.asarray(tokens.flatten(1).cpu().numpy())


def retrieval_loss(encoder: PairEncoder, device: str) -> Loss:
    """CLIP's loss between pairs and sentences."""

    def loss(split: CaptionedPairs, rows: Indices, sentences: Indices) -> Tensor:
        _, pairs = encoder(*split.tokens(rows, device))
        texts = encoder.texts(_tensor(split.features[sentences], device))
        scores = texts @ pairs.T * encoder.log_scale.exp().clamp(max=_MAX_SCALE)
        right = torch.arange(len(rows), device=device)
        return (nn.functional.cross_entropy(scores, right) + nn.functional.cross_entropy(scores.T, right)) / 2

    return loss


def writing_loss(encoder: PairEncoder, decoder: SentenceDecoder, vocabulary: Vocabulary, device: str) -> Loss:
    """The loss of writing a sentence of each pair."""

    def loss(split: CaptionedPairs, rows: Indices, sentences: Indices) -> Tensor:
        seen, _ = encoder(*split.tokens(rows, device))
        numbers = vocabulary.numbers([split.sentences[sentence] for sentence in sentences])
        return next_word_loss(decoder, seen, _tensor(numbers, device))

    return loss


def next_word_loss(decoder: nn.Module, seen: Tensor, numbers: Tensor) -> Tensor:
    """Mean cross-entropy of each word and of the end, given the words before it and visual tokens `seen`.

    `numbers` `[batch, places]` are the words of one sentence per pair, closed by `EDGE` and padded with `PAD`.
    """
    scores = decoder(seen, nn.functional.pad(numbers[:, :-1], (1, 0), value=EDGE))
    return nn.functional.cross_entropy(scores.flatten(0, 1), numbers.flatten(), ignore_index=PAD)


def learn(
    modules: nn.ModuleList,
    settings: StageSettings,
    train: CaptionedPairs,
    val: CaptionedPairs,
    loss: Loss,
    seed: int,
) -> None:
    """Train `modules` in place and leave them in evaluation mode with the weights of their best epoch.

    Every pair must have a sentence. `seed` is of order and sentences; dropout follows torch's own generator.
    """
    generator = np.random.default_rng(seed)
    pairs, dim = len(train.before), train.before.shape[2]
    batches = math.ceil(pairs / settings.batch)
    steps = settings.epochs * batches
    highest = settings.lr * min(1.0, 128 / dim)
    optimiser = torch.optim.AdamW(modules.parameters(), highest, weight_decay=0.01)
    pace = OneCycleLR(optimiser, highest, total_steps=steps, pct_start=0.1, cycle_momentum=False)
    lowest, best = math.inf, deepcopy(modules.state_dict())
    with bar(settings.title, steps, "step") as progress:
        for _ in range(settings.epochs):
            modules.train()
            chosen = train.one_each(generator)
            for rows in np.array_split(generator.permutation(pairs), batches):
                optimiser.zero_grad()
                loss(train, rows, chosen[rows]).backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(modules.parameters(), 1.0)
                optimiser.step()
                pace.step()
                progress.update()
            modules.eval()
            if (now := _validated(val, loss)) < lowest:
                lowest, best = now, deepcopy(modules.state_dict())
    modules.load_state_dict(best)


@torch.inference_mode()
def _validated(val: CaptionedPairs, loss: Loss) -> float:
    """The mean loss of all pairs of `val` with their first sentences, in blocks."""
    chosen = val.one_each()
    return sum(float(loss(val, rows, chosen[rows])) * len(rows) for rows in val.blocks()) / len(val.before)


def _tensor(rows: Features | Indices, device: str) -> Tensor:
    return torch.from_numpy(np.array(rows)).to(device)


@torch.inference_mode()
def embeddings(encoder: PairEncoder, pairs: CaptionedPairs, device: str) -> tuple[Features, Features]:
    """Unit embeddings of the sentences `[sentences, dim]` and of the pairs `[pairs, dim]`."""
    found = [encoder(*pairs.tokens(rows, device))[1].cpu().numpy() for rows in pairs.blocks()]
    return encoder.texts(_tensor(pairs.features, device)).cpu().numpy(), np.concatenate(found)


@torch.inference_mode()
def captions(
    encoder: PairEncoder, decoder: SentenceDecoder, vocabulary: Vocabulary, pairs: CaptionedPairs, device: str
) -> list[str]:
    """The most likely sentence about each pair, word by word; it may be empty."""
    sentences: list[str] = []
    with bar("write differences", len(pairs.before), "pair") as progress:
        for rows in pairs.blocks():
            seen, _ = encoder(*pairs.tokens(rows, device))
            sentences += [vocabulary.sentence(row) for row in decoder.greedy(seen).tolist()]
            progress.update(len(rows))
    return sentences
