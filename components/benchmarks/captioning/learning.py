"""Learning to find differences of pictures and then to write about them: CLIP4IDC's two stages (Guo et al. 2022).

Both learn by AdamW over shuffled pairs and keep their best epoch by the validation split. First pairs and sentences
learn to find each other; then what has learned to see differences learns to write about them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from more_itertools import chunked
from torch import Tensor, nn

from components.benchmarks.captioning.examples import Examples, examples, first_vectors
from components.benchmarks.captioning.modules import PairSeer, Writer
from components.benchmarks.captioning.pairs import EDGE, PAD, PairSets, PicturePair, Vocabulary, split_words
from components.benchmarks.encoding.published_context import PublishedContext
from components.core.compute.hardware import pick_device
from components.core.errors import InputError
from components.core.metrics import Features, Indices
from components.core.progress import bar
from components.methods.contract.losses import Feature, info_nce

Loss = Callable[[Indices, Indices], Tensor]
"""The loss of pairs `[batch]` with one sentence of each `[batch]`."""

_NARROW = 128


@dataclass(frozen=True)
class Course:
    """How long and how fast a stage learns.

    Attributes:
        title: of its progress bar.
        epochs: times that every pair is visited, each time with another of its sentences.
        batch: pairs of a step.
        lr: highest learning rate for 128 dimensions and fewer, lower in proportion for more; it is reached after a
            tenth of the steps and then lowered to zero by a cosine.
        weight_decay: AdamW's.
        clip: largest norm of a step's gradient.
    """

    title: str
    epochs: int
    batch: int
    lr: float
    weight_decay: float = 0.01
    clip: float = 1.0


RETRIEVAL = Course("learn to retrieve differences", epochs=20, batch=128, lr=2e-3)
"""Epochs and batch are those of CLIP4IDC on Spot-the-Difference."""
WRITING = Course("learn to write differences", epochs=20, batch=64, lr=1e-3)
_MAX_SCALE = 100.0
_EMBEDDED, _WRITTEN = 256, 128
"""Pairs that are embedded, and written about, at once."""


def learn(
    modules: nn.ModuleList,
    course: Course,
    dim: int,
    pairs: int,
    loss: Loss,
    draw: Callable[[np.random.Generator], Indices],
    validated: Callable[[], float],
    seed: int,
) -> None:
    """Train `modules` in place and leave them in evaluation mode, as they were after their best epoch.

    Args:
        modules: what learns.
        course: for how long.
        dim: width of the modules.
        pairs: training pairs that there are.
        loss: of a batch.
        draw: a sentence of each training pair `[pairs]`.
        validated: the loss on the validation split, modules in evaluation mode.
        seed: of order and sentences; dropout follows torch's own generator.
    """
    generator = np.random.default_rng(seed)
    batches = math.ceil(pairs / course.batch)
    steps = course.epochs * batches
    highest = course.lr * min(1.0, _NARROW / dim)
    optimiser = torch.optim.AdamW(modules.parameters(), highest, weight_decay=course.weight_decay)
    pace = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _pace(step, steps))
    best, kept = math.inf, _state(modules)
    with bar(course.title, steps, "step") as progress:
        for _ in range(course.epochs):
            modules.train()
            chosen = draw(generator)
            for rows in np.array_split(generator.permutation(pairs), batches):
                optimiser.zero_grad()
                loss(rows, chosen[rows]).backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(modules.parameters(), course.clip)
                optimiser.step()
                pace.step()
                progress.update()
            modules.eval()
            with torch.inference_mode():
                found = validated()
            if found < best:
                best, kept = found, _state(modules)
    modules.load_state_dict(kept)


def _pace(step: int, steps: int) -> float:
    """Share of the learning rate: up in a straight line for a tenth of the steps, then down to 0 by a cosine."""
    warm = max(1, steps // 10)
    return min((step + 1) / warm, 0.5 * (1 + math.cos(math.pi * max(0, step - warm) / max(1, steps - warm))))


def _state(modules: nn.ModuleList) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in modules.state_dict().items()}


def _retrieval_loss(seer: PairSeer, pairs: Tensor, texts: Tensor) -> Tensor:
    """CLIP4IDC's retrieval loss: symmetric InfoNCE of unit embeddings `[batch, dim]` whose rows belong together."""
    one, other = (Feature(rows, 0, len(rows)) for rows in (texts, pairs))
    return info_nce(one, other, seer.log_scale.exp().clamp(max=_MAX_SCALE))


def adapted(train: Examples, val: Examples, seed: int, device: str, course: Course) -> PairSeer:
    """A `PairSeer` that has learned from `train`, as it was when `val` had its lowest loss.

    Args:
        train, val: pairs, each with a sentence at least.
        seed: of order and sentences.
        device: where it learns.
        course: for how long.
    """
    seer = PairSeer(*train.before.shape[1:]).to(device)

    def loss(rows: Indices, sentences: Indices) -> Tensor:
        _, pairs = seer(*train.seen(rows, device))
        return _retrieval_loss(seer, pairs, seer.texts(_tensor(train.features[sentences], device)))

    def validated() -> float:
        told = _tensor(val.features[val.one_each(None)], device)
        pairs = _tensor(pair_embeddings(seer, val, device), device)
        return float(_retrieval_loss(seer, pairs, seer.texts(told)))

    learn(nn.ModuleList([seer]), course, train.before.shape[2], len(train), loss, train.one_each, validated, seed)
    return seer


def pair_embeddings(seer: PairSeer, pairs: Examples, device: str) -> Features:
    """Unit embeddings `[pairs, dim]`."""
    return _in_blocks(lambda rows: seer(*pairs.seen(rows, device))[1], len(pairs))


def text_embeddings(seer: PairSeer, features: Features, device: str) -> Features:
    """Unit embeddings `[texts, dim]` of the text tower's features `[texts, dim]`."""
    return _in_blocks(lambda rows: seer.texts(_tensor(features[rows], device)), len(features))


@torch.inference_mode()
def _in_blocks(embed: Callable[[Indices], Tensor], count: int) -> Features:
    blocks = [embed(np.array(rows)).cpu().numpy() for rows in chunked(range(count), _EMBEDDED)]
    return np.concatenate(blocks)


def _tensor(rows: Features, device: str) -> Tensor:
    return torch.from_numpy(np.array(rows)).to(device)


def taught(
    seer: PairSeer,
    vectors: Features,
    vocabulary: Vocabulary,
    train: Examples,
    val: Examples,
    seed: int,
    device: str,
    course: Course,
) -> Writer:
    """A `Writer` that has learned from `train`, as it was when `val` had its lowest loss; `seer` learns on with it.

    Args:
        seer: as the first stage left it.
        vectors: those that the words start with `[numbers, dim]`.
        vocabulary: the words.
        train, val: pairs, each with a sentence at least.
        seed: of order and sentences.
        device: where they learn.
        course: for how long.
    """
    writer = Writer(torch.from_numpy(vectors.copy())).to(device)
    to_learn, to_check = (torch.from_numpy(vocabulary.numbers(split.sentences)).to(device) for split in (train, val))

    def loss(rows: Indices, sentences: Indices) -> Tensor:
        seen, _ = seer(*train.seen(rows, device))
        return next_word_loss(writer, seen, to_learn[torch.from_numpy(sentences).to(device)])

    def validated() -> float:
        chosen, losses = val.one_each(None), []
        for rows in chunked(range(len(val)), _WRITTEN):
            seen, _ = seer(*val.seen(np.array(rows), device))
            numbers = to_check[torch.from_numpy(chosen[rows]).to(device)]
            losses += [float(next_word_loss(writer, seen, numbers))] * len(rows)
        return float(np.mean(losses))

    learn(nn.ModuleList([seer, writer]), course, vectors.shape[1], len(train), loss, train.one_each, validated, seed)
    return writer


def next_word_loss(writer: Writer, seen: Tensor, numbers: Tensor) -> Tensor:
    """Mean cross-entropy of each word, and of the end, given the words before it.

    Args:
        writer: what writes.
        seen: visual tokens `[batch, tokens, dim]`.
        numbers: words of one sentence for each pair, closed by `EDGE` and filled up with `PAD`, `[batch, places]`.
    """
    begun = nn.functional.pad(numbers[:, :-1], (1, 0), value=EDGE)
    scores = writer(seen, begun)
    return nn.functional.cross_entropy(scores.flatten(0, 1), numbers.flatten(), ignore_index=PAD)


@torch.inference_mode()
def captions(seer: PairSeer, writer: Writer, vocabulary: Vocabulary, pairs: Examples, device: str) -> list[str]:
    """The likeliest sentence about each pair, word by word; it may be empty."""
    found: list[str] = []
    with bar("write differences", len(pairs), "pair") as progress:
        for rows in chunked(range(len(pairs)), _WRITTEN):
            seen, _ = seer(*pairs.seen(np.array(rows), device))
            found += [vocabulary.sentence(row) for row in writer.greedy(seen).tolist()]
            progress.update(len(rows))
    return found


@dataclass(frozen=True)
class Found:
    """What is scored.

    Attributes:
        queries: unit embeddings of the test split's sentences `[sentences, dim]`.
        pairs: those of its pairs `[pairs, dim]`.
        gold: the pair that each sentence is about `[sentences]`.
        captions: what was written about each pair that people describe, in words with a space between.
        references: the sentences about each of these, alike.
    """

    queries: Features
    pairs: Features
    gold: Indices
    captions: list[str]
    references: list[list[str]]


def run(context: PublishedContext, sets: PairSets) -> Found:
    """Learn from the training pairs, then look for the test pairs and write about them; the same for the same seed.

    The embeddings are those of the first stage: the second changes what sees pairs, and nothing looks for them then.

    Raises:
        InputError: a split has no pair with a sentence, or the encoder sees no images.
    """
    device = pick_device("auto")
    train, val = (_told(context, pairs, which) for pairs, which in ((sets.train, "training"), (sets.val, "validation")))
    # Test pairs that nobody describes stay among those that are searched.
    test = _told(context, sets.test, "test", only=False)
    with torch.random.fork_rng():
        torch.manual_seed(context.seed)
        seer = adapted(train, val, context.seed, device, RETRIEVAL)
        queries = text_embeddings(seer, test.features, device)
        pairs = pair_embeddings(seer, test, device)
        vocabulary = Vocabulary.of(train.sentences)
        vectors = first_vectors(context, vocabulary)
        writer = taught(seer, vectors, vocabulary, train, val, context.seed, device, WRITING)
    written = captions(seer, writer, vocabulary, test, device)
    references: list[list[str]] = [[] for _ in sets.test]
    for sentence, pair in zip(test.sentences, test.pair, strict=True):
        references[pair].append(" ".join(split_words(sentence)))
    described = [row for row, sentences in enumerate(references) if sentences]
    return Found(queries, pairs, test.pair, [written[row] for row in described], [references[row] for row in described])


def _told(context: PublishedContext, pairs: Sequence[PicturePair], which: str, *, only: bool = True) -> Examples:
    """The pairs that have a sentence, or where not `only` those are wanted all, of which one at least has."""
    worded = [_worded(pair) for pair in pairs]
    told = [pair for pair in worded if pair.sentences]
    if not told:
        raise InputError(f"{context.folder}: no {which} pair has a sentence: fetch the annotations again")
    return examples(context, told if only else worded)


def _worded(pair: PicturePair) -> PicturePair:
    """The pair without sentences that have no word, such as a full stop."""
    return PicturePair(pair.before, pair.after, tuple(one for one in pair.sentences if split_words(one)))
