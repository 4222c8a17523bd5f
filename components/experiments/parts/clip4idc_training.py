"""Training of CLIP4IDC's two stages: retrieval of pairs by sentences, then writing of sentences (Guo et al. 2022).

Both use AdamW over shuffled pairs and keep the epoch with the lowest validation loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from more_itertools import chunked
from torch import Tensor, nn

from components.benchmarks.scoring.encoding.published_context import PublishedContext
from components.core.compute.hardware import pick_device
from components.core.compute.metrics import Features, Indices
from components.core.system.errors import InputError
from components.core.system.progress import bar
from components.experiments.parts.captioned_pairs import EDGE, PAD, PairSets, PicturePair, Vocabulary, split_words
from components.experiments.parts.clip4idc_model import (
    CaptionedPairs,
    PairEncoder,
    SentenceDecoder,
    captioned_pairs,
    first_vectors,
)
from components.methods.contract.losses import Feature, info_nce

Loss = Callable[[Indices, Indices], Tensor]
"""The loss of pairs `[batch]` with one sentence of each `[batch]`."""

_NARROW = 128


@dataclass(frozen=True)
class StageSettings:
    """Training settings of a stage; an epoch has a new random sentence of every pair.

    `lr` is the highest learning rate for 128 dimensions and fewer, lower in proportion for more; it is reached after a
    tenth of the steps and then decays to zero by a cosine. `clip` is the maximum norm of a step's gradient.
    """

    title: str
    epochs: int
    batch: int
    lr: float
    weight_decay: float = 0.01
    clip: float = 1.0


RETRIEVAL = StageSettings("learn to retrieve differences", epochs=20, batch=128, lr=2e-3)
"""Epochs and batch are those of CLIP4IDC on Spot-the-Difference."""
WRITING = StageSettings("learn to write differences", epochs=20, batch=64, lr=1e-3)
_MAX_SCALE = 100.0
_EMBEDDED, _CAPTIONED = 256, 128
"""Pairs that are embedded, and captioned, at once."""


def learn(
    modules: nn.ModuleList,
    settings: StageSettings,
    dim: int,
    pairs: int,
    loss: Loss,
    draw: Callable[[np.random.Generator], Indices],
    validated: Callable[[], float],
    seed: int,
) -> None:
    """Train `modules` of width `dim` in place and leave them in evaluation mode with the weights of their best epoch.

    Args:
        draw: a sentence of each training pair `[pairs]`.
        validated: the loss on the validation split, modules in evaluation mode.
        seed: of order and sentences; dropout follows torch's own generator.
    """
    generator = np.random.default_rng(seed)
    batches = math.ceil(pairs / settings.batch)
    steps = settings.epochs * batches
    highest = settings.lr * min(1.0, _NARROW / dim)
    optimiser = torch.optim.AdamW(modules.parameters(), highest, weight_decay=settings.weight_decay)
    pace = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _pace(step, steps))
    best, kept = math.inf, _state(modules)
    with bar(settings.title, steps, "step") as progress:
        for _ in range(settings.epochs):
            modules.train()
            chosen = draw(generator)
            for rows in np.array_split(generator.permutation(pairs), batches):
                optimiser.zero_grad()
                loss(rows, chosen[rows]).backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(modules.parameters(), settings.clip)
                optimiser.step()
                pace.step()
                progress.update()
            modules.eval()
            with torch.inference_mode():
                loss_now = validated()
            if loss_now < best:
                best, kept = loss_now, _state(modules)
    modules.load_state_dict(kept)


def _pace(step: int, steps: int) -> float:
    """Share of the learning rate: linear warm-up for a tenth of the steps, then a cosine down to 0."""
    warm = max(1, steps // 10)
    return min((step + 1) / warm, 0.5 * (1 + math.cos(math.pi * max(0, step - warm) / max(1, steps - warm))))


def _state(modules: nn.ModuleList) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in modules.state_dict().items()}


def _retrieval_loss(encoder: PairEncoder, pairs: Tensor, texts: Tensor) -> Tensor:
    """CLIP4IDC's retrieval loss: symmetric InfoNCE of unit embeddings `[batch, dim]` whose rows belong together."""
    one, other = (Feature(rows, 0, len(rows)) for rows in (texts, pairs))
    return info_nce(one, other, encoder.log_scale.exp().clamp(max=_MAX_SCALE))


def train_retrieval(
    train: CaptionedPairs, val: CaptionedPairs, seed: int, device: str, settings: StageSettings
) -> PairEncoder:
    """A `PairEncoder` trained on `train`, with the lowest loss on `val`; every pair must have a sentence."""
    encoder = PairEncoder(*train.before.shape[1:]).to(device)

    def loss(rows: Indices, sentences: Indices) -> Tensor:
        _, pairs = encoder(*train.tokens(rows, device))
        return _retrieval_loss(encoder, pairs, encoder.texts(_tensor(train.features[sentences], device)))

    def validated() -> float:
        texts = encoder.texts(_tensor(val.features[val.one_each(None)], device))
        pairs = _tensor(pair_embeddings(encoder, val, device), device)
        return float(_retrieval_loss(encoder, pairs, texts))

    learn(nn.ModuleList([encoder]), settings, train.before.shape[2], len(train), loss, train.one_each, validated, seed)
    return encoder


def pair_embeddings(encoder: PairEncoder, pairs: CaptionedPairs, device: str) -> Features:
    """Unit embeddings `[pairs, dim]`."""
    return _in_blocks(lambda rows: encoder(*pairs.tokens(rows, device))[1], len(pairs))


def text_embeddings(encoder: PairEncoder, features: Features, device: str) -> Features:
    """Unit embeddings `[texts, dim]` of the text tower's features `[texts, dim]`."""
    return _in_blocks(lambda rows: encoder.texts(_tensor(features[rows], device)), len(features))


@torch.inference_mode()
def _in_blocks(embed: Callable[[Indices], Tensor], count: int) -> Features:
    blocks = [embed(np.array(rows)).cpu().numpy() for rows in chunked(range(count), _EMBEDDED)]
    return np.concatenate(blocks)


def _tensor(rows: Features, device: str) -> Tensor:
    return torch.from_numpy(np.array(rows)).to(device)


def train_writing(
    encoder: PairEncoder,
    vectors: Features,
    vocabulary: Vocabulary,
    train: CaptionedPairs,
    val: CaptionedPairs,
    seed: int,
    device: str,
    settings: StageSettings,
) -> SentenceDecoder:
    """A `SentenceDecoder` trained on `train`, with the lowest loss on `val`; `encoder` is trained with it.

    It starts from `vectors` of the words `[numbers, dim]`. Every pair must have a sentence.
    """
    decoder = SentenceDecoder(torch.from_numpy(vectors.copy())).to(device)
    train_words, val_words = (
        torch.from_numpy(vocabulary.numbers(split.sentences)).to(device) for split in (train, val)
    )

    def loss(rows: Indices, sentences: Indices) -> Tensor:
        seen, _ = encoder(*train.tokens(rows, device))
        return next_word_loss(decoder, seen, train_words[torch.from_numpy(sentences).to(device)])

    def validated() -> float:
        chosen, losses = val.one_each(None), []
        for rows in chunked(range(len(val)), _CAPTIONED):
            seen, _ = encoder(*val.tokens(np.array(rows), device))
            numbers = val_words[torch.from_numpy(chosen[rows]).to(device)]
            losses += [float(next_word_loss(decoder, seen, numbers))] * len(rows)
        return float(np.mean(losses))

    learn(
        nn.ModuleList([encoder, decoder]), settings, vectors.shape[1], len(train), loss, train.one_each, validated, seed
    )
    return decoder


def next_word_loss(decoder: SentenceDecoder, seen: Tensor, numbers: Tensor) -> Tensor:
    """Mean cross-entropy of each word, and of the end, given the words before it and visual tokens `seen`.

    `numbers` `[batch, places]` are the words of one sentence per pair, closed by `EDGE` and padded with `PAD`.
    """
    begun = nn.functional.pad(numbers[:, :-1], (1, 0), value=EDGE)
    scores = decoder(seen, begun)
    return nn.functional.cross_entropy(scores.flatten(0, 1), numbers.flatten(), ignore_index=PAD)


@torch.inference_mode()
def captions(
    encoder: PairEncoder, decoder: SentenceDecoder, vocabulary: Vocabulary, pairs: CaptionedPairs, device: str
) -> list[str]:
    """The most likely sentence about each pair, word by word; it may be empty."""
    sentences: list[str] = []
    with bar("write differences", len(pairs), "pair") as progress:
        for rows in chunked(range(len(pairs)), _CAPTIONED):
            seen, _ = encoder(*pairs.tokens(np.array(rows), device))
            sentences += [vocabulary.sentence(row) for row in decoder.greedy(seen).tolist()]
            progress.update(len(rows))
    return sentences


@dataclass(frozen=True)
class CaptioningResult:
    """Unit embeddings of the test split's sentences (`queries`) and pairs, and captions of the described pairs.

    `gold` is the pair that each sentence is about `[sentences]`; references have the captions' form.
    """

    queries: Features
    pairs: Features
    gold: Indices
    captions: list[str]
    references: list[list[str]]


def run(context: PublishedContext, sets: PairSets) -> CaptioningResult:
    """Train on the training pairs, then embed and caption the test pairs; deterministic for a seed.

    The embeddings are those of the first stage, because the second changes the encoder of pairs.
    """
    device = pick_device("auto")
    train, val = (
        _described(context, pairs, which) for pairs, which in ((sets.train, "training"), (sets.val, "validation"))
    )
    # Test pairs without a sentence remain in the gallery.
    test = _described(context, sets.test, "test", only=False)
    with torch.random.fork_rng():
        torch.manual_seed(context.seed)
        encoder = train_retrieval(train, val, context.seed, device, RETRIEVAL)
        queries = text_embeddings(encoder, test.features, device)
        pairs = pair_embeddings(encoder, test, device)
        vocabulary = Vocabulary.of(train.sentences)
        vectors = first_vectors(context, vocabulary)
        decoder = train_writing(encoder, vectors, vocabulary, train, val, context.seed, device, WRITING)
    written = captions(encoder, decoder, vocabulary, test, device)
    references: list[list[str]] = [[] for _ in sets.test]
    for sentence, pair in zip(test.sentences, test.pair, strict=True):
        references[pair].append(" ".join(split_words(sentence)))
    described = [row for row, sentences in enumerate(references) if sentences]
    return CaptioningResult(
        queries, pairs, test.pair, [written[row] for row in described], [references[row] for row in described]
    )


def _described(
    context: PublishedContext, pairs: Sequence[PicturePair], which: str, *, only: bool = True
) -> CaptionedPairs:
    """The pairs with a sentence, or all pairs unless `only`; at least one must have a sentence."""
    worded = [_worded(pair) for pair in pairs]
    described = [pair for pair in worded if pair.sentences]
    if not described:
        raise InputError(f"{context.folder}: no {which} pair has a sentence: fetch the annotations again")
    return captioned_pairs(context, described if only else worded)


def _worded(pair: PicturePair) -> PicturePair:
    """The pair without sentences that have no words, such as a full stop."""
    return PicturePair(pair.before, pair.after, tuple(one for one in pair.sentences if split_words(one)))
