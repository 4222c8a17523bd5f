"""Both stages one after the other on the splits of a data set, and what they find of its test pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from components.benchmarks.captioning import adaptation, writing
from components.benchmarks.captioning.examples import Examples, examples, first_vectors
from components.benchmarks.captioning.pairs import PairSets, PicturePair
from components.benchmarks.captioning.words import Vocabulary, split_words
from components.benchmarks.encoding.published_context import PublishedContext
from components.core.compute.hardware import pick_device
from components.core.errors import InputError
from components.core.metrics import Features, Indices


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
        seer = adaptation.adapted(train, val, context.seed, device, adaptation.COURSE)
        queries = adaptation.text_embeddings(seer, test.features, device)
        pairs = adaptation.pair_embeddings(seer, test, device)
        vocabulary = Vocabulary.of(train.sentences)
        vectors = first_vectors(context, vocabulary)
        writer = writing.taught(seer, vectors, vocabulary, train, val, context.seed, device, writing.COURSE)
    written = writing.captions(seer, writer, vocabulary, test, device)
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
