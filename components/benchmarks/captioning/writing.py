"""CLIP4IDC's second stage: what has learned to see differences learns to write about them."""

from __future__ import annotations

import numpy as np
import torch
from more_itertools import chunked
from torch import Tensor, nn

from components.benchmarks.captioning.examples import Examples
from components.benchmarks.captioning.learning import Course, learn
from components.benchmarks.captioning.modules import PairSeer, Writer
from components.benchmarks.captioning.words import EDGE, PAD, Vocabulary
from components.core.metrics import Features, Indices
from components.core.progress import bar

COURSE = Course("learn to write differences", epochs=20, batch=64, lr=1e-3)
_BLOCK = 128


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
        for rows in chunked(range(len(val)), _BLOCK):
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
        for rows in chunked(range(len(pairs)), _BLOCK):
            seen, _ = seer(*pairs.seen(np.array(rows), device))
            found += [vocabulary.sentence(row) for row in writer.greedy(seen).tolist()]
            progress.update(len(rows))
    return found
