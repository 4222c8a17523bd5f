"""CLIP4IDC on frozen towers: pairs of pictures are found by sentences about their difference, then described.

PC-CLIP's tables 12 and 13 train CLIP4IDC (Guo et al. 2022) in two stages: first pairs and sentences learn a joint
embedding, then a decoder learns to write. Here both stages train on top of frozen towers, in minutes; the paper
fine-tunes the towers for hours. Encoders with the same image tower differ by text features of sentences and words.
"""

from __future__ import annotations

import sys
from typing import Literal

import numpy as np

from components.core.compute.metrics import gold_ranks, hit_at_k
from components.core.system.errors import InputError
from components.data.test_sets.files import picture_file
from components.data.test_sets.readers import spot_the_difference
from components.evaluation.benchmarks.published.spot_the_difference import RECALL
from components.evaluation.scoring.benchmark import Benchmark, Scores, metrics
from components.evaluation.scoring.published_context import PublishedContext
from research.experiments.parts.sentences import PicturePair, Vocabulary, caption_scores, split_words

NAME = "difference_captioning"


def score(context: PublishedContext) -> Scores:
    """Recall@k of pairs, one query per sentence; BLEU-4, METEOR, ROUGE-L and CIDEr-D of a caption for each pair.

    Both stages train on the training pairs; everything is deterministic for a seed. Recall is of the first stage,
    because the second changes the encoder of pairs.
    """
    # torch, which `cliptune evaluate --list` does not need.
    import torch

    from research.experiments.parts import clip4idc

    # A missing package or a broken Java ends this before minutes of training.
    if "meteor" not in caption_scores(["a"], [["a"]]):
        print(f"{NAME}: METEOR is skipped, because it needs Java: install a JRE and add --overwrite", file=sys.stderr)
    device, seed = context.under_test.device, context.seed
    given = {split: _pairs(context, split) for split in ("train", "val", "test")}
    train, val = (
        clip4idc.CaptionedPairs.of(context, [pair for pair in given[split] if pair[2]]) for split in ("train", "val")
    )
    # Test pairs without a sentence remain in the gallery.
    test = clip4idc.CaptionedPairs.of(context, given["test"])
    vocabulary = Vocabulary.of(train.sentences)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        encoder = clip4idc.PairEncoder(*train.before.shape[1:]).to(device)
        loss = clip4idc.retrieval_loss(encoder, device)
        clip4idc.learn(torch.nn.ModuleList([encoder]), clip4idc.RETRIEVAL, train, val, loss, seed)
        ranks = gold_ranks(*clip4idc.embeddings(encoder, test, device), test.pair, ties="pessimistic")
        # CLIP4IDC starts from CLIP's token embeddings, which only some text towers have.
        words = np.asarray(context.texts(vocabulary.words), dtype=np.float32)
        decoder = clip4idc.SentenceDecoder(torch.from_numpy(np.pad(words, ((2, 0), (0, 0))))).to(device)
        loss = clip4idc.writing_loss(encoder, decoder, vocabulary, device)
        clip4idc.learn(torch.nn.ModuleList([encoder, decoder]), clip4idc.WRITING, train, val, loss, seed)
    written = clip4idc.captions(encoder, decoder, vocabulary, test, device)
    described = [row for row, (*_, sentences) in enumerate(given["test"]) if sentences]
    captions = [written[row] for row in described]
    references = [[" ".join(split_words(sentence)) for sentence in given["test"][row][2]] for row in described]
    for caption, (reference, *_) in list(zip(captions, references, strict=True))[:3]:
        print(f"{NAME}: caption '{caption}', reference '{reference}'", file=sys.stderr)
    found = {f"{NAME}/{name}": value for name, value in caption_scores(captions, references).items()}
    recalls = {f"{NAME}/recall_at_{k}": hit_at_k(ranks, k) for k in context.ks}
    values = recalls | {name: value for name, value in found.items() if isinstance(value, np.ndarray)}
    scalars = {name: value for name, value in found.items() if isinstance(value, float)}
    return Scores(values, scalars=scalars, pictures=dict.fromkeys(recalls, test.pair))


def _pairs(context: PublishedContext, split: Literal["train", "val", "test"]) -> list[PicturePair]:
    """The pairs of a split; sentences without words, such as a full stop, are left out."""
    pairs = []
    for image, sentences in spot_the_difference.read_frame_pairs(context, split).items():
        paths = (context.folder / spot_the_difference.IMAGES / name for name in spot_the_difference.frame_names(image))
        before, after = map(picture_file, paths)
        pairs.append((before, after, [one for one in sentences if split_words(one)]))
    if not any(sentences for *_, sentences in pairs):
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
