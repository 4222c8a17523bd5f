"""CLIP4IDC on frozen towers: pairs of pictures are found by sentences about their difference, then described.

PC-CLIP's tables 12 and 13 train CLIP4IDC (Guo et al. 2022) in two stages: first pairs and sentences learn a joint
embedding, then a decoder learns to write. Here both stages train on top of frozen towers, in minutes; the paper
fine-tunes the towers for hours. Encoders with the same image tower differ by text features of sentences and words.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

import numpy as np

from components.core.compute.metrics import Features, Indices, gold_ranks, hit_at_k
from components.core.system.errors import InputError
from components.data.test_sets.pictures import picture_file
from components.data.test_sets.readers import spot_the_difference
from components.evaluation.benchmarks.published.spot_the_difference import RECALL
from components.evaluation.scoring.benchmark import Benchmark, Scores, metrics
from components.evaluation.scoring.published_context import PublishedContext
from research.experiments.parts.sentences import (
    PicturePair,
    Vocabulary,
    caption_scores,
    has_java,
    scorers,
    split_words,
)

NAME = "difference_captioning"


def score(context: PublishedContext) -> Scores:
    """Recall@k of pairs, one query per sentence; BLEU-4, METEOR, ROUGE-L and CIDEr-D of a caption for each pair."""
    # Checked before minutes of training.
    scorers()
    if not has_java():
        print(f"{NAME}: METEOR is skipped, because it needs Java: install a JRE and add --overwrite", file=sys.stderr)
    found = _trained(context)
    ranks = gold_ranks(found.queries, found.pairs, found.gold, ties="pessimistic")
    values = {f"{NAME}/recall_at_{k}": hit_at_k(ranks, k) for k in context.ks}
    pictures = dict.fromkeys(values, found.gold)
    scored = caption_scores(found.captions, found.references)
    values |= {f"{NAME}/rouge_l": scored.rouge_l, f"{NAME}/cider": scored.cider}
    scalars = {f"{NAME}/bleu_4": scored.bleu_4}
    if scored.meteor is not None:
        scalars[f"{NAME}/meteor"] = scored.meteor
    for caption, references in list(zip(found.captions, found.references, strict=True))[:3]:
        print(f"{NAME}: caption '{caption}', reference '{references[0]}'", file=sys.stderr)
    return Scores(values, scalars=scalars, pictures=pictures)


@dataclass(frozen=True)
class _Captioned:
    """Unit embeddings of the test split's sentences (`queries`) and pairs, and captions of the described pairs.

    `gold` is the pair that each sentence is about `[sentences]`; references have the captions' form.
    """

    queries: Features
    pairs: Features
    gold: Indices
    captions: list[str]
    references: list[list[str]]


def _trained(context: PublishedContext) -> _Captioned:
    """Train on the training pairs, then embed and caption the test pairs; deterministic for a seed.

    The embeddings are those of the first stage, because the second changes the encoder of pairs.
    """
    # torch, which `cliptune evaluate --list` does not need.
    import torch

    from research.experiments.parts import clip4idc

    device, seed = context.under_test.device, context.seed
    given = {split: _pairs(context, split) for split in ("train", "val", "test")}
    train, val = (
        clip4idc.CaptionedPairs.of(context, [pair for pair in given[split] if pair.sentences])
        for split in ("train", "val")
    )
    # Test pairs without a sentence remain in the gallery.
    test = clip4idc.CaptionedPairs.of(context, given["test"])
    vocabulary = Vocabulary.of(train.sentences)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        encoder = clip4idc.train_retrieval(train, val, seed, device, clip4idc.RETRIEVAL)
        queries, pairs = clip4idc.embeddings(encoder, test, device)
        # CLIP4IDC starts from CLIP's token embeddings, which only some text towers have.
        words = np.asarray(context.texts(vocabulary.words), dtype=np.float32)
        decoder = clip4idc.SentenceDecoder(torch.from_numpy(np.pad(words, ((2, 0), (0, 0))))).to(device)
        clip4idc.train_writing(encoder, decoder, vocabulary, train, val, seed, device, clip4idc.WRITING)
    written = clip4idc.captions(encoder, decoder, vocabulary, test, device)
    described = [(caption, pair) for caption, pair in zip(written, given["test"], strict=True) if pair.sentences]
    references = [[" ".join(split_words(sentence)) for sentence in pair.sentences] for _, pair in described]
    return _Captioned(queries, pairs, test.pair, [caption for caption, _ in described], references)


def _pairs(context: PublishedContext, split: Literal["train", "val", "test"]) -> list[PicturePair]:
    """The pairs of a split; sentences without words, such as a full stop, are left out."""
    pairs = []
    for image, sentences in spot_the_difference.read_frame_pairs(context, split).items():
        paths = (context.folder / spot_the_difference.IMAGES / name for name in spot_the_difference.frame_names(image))
        before, after = map(picture_file, paths)
        pairs.append(PicturePair(before, after, tuple(one for one in sentences if split_words(one))))
    if not any(pair.sentences for pair in pairs):
        path = context.folder / f"annotations/{split}.json"
        raise InputError(f"{path}: no pair has a sentence: fetch the annotations again")
    return pairs


BENCHMARKS = (
    Benchmark(
        name=NAME,
        version=1,
        protocol="CLIP4IDC's two stages, learned on frozen towers from Spot-the-Difference; COCO's caption metrics",
        citation="CLIP4IDC (arXiv 2206.00629), PC-CLIP (arXiv 2409.09721), appendix C.3",
        folder=spot_the_difference.NAME,
        needs=(
            spot_the_difference.annotation_file("train", "training split", "1.2 MB"),
            spot_the_difference.annotation_file("val", "validation split", "200 kB"),
            *spot_the_difference.FILES,
        ),
        metrics=(
            *RECALL,
            *metrics("none: captions are not compared with each other", "bleu_4", "meteor", "rouge_l", "cider"),
        ),
        score=score,
    ),
)
