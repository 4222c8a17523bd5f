"""CLIP4IDC on frozen towers: retrieve pairs of images by sentences about their difference, and write such sentences.

PC-CLIP's tables 12 and 13 train CLIP4IDC (Guo et al. 2022) in two stages: first pairs and sentences learn a joint
embedding, then a decoder learns to write. Here both stages train on top of frozen towers, in minutes; the paper
fine-tunes the towers for hours. Encoders with the same image tower differ by text features of sentences and words.
"""

from __future__ import annotations

import sys
from typing import Literal

from components.benchmarks.published.spot_the_difference import RECALL
from components.benchmarks.scoring.benchmark import Benchmark, Scores, metrics
from components.benchmarks.scoring.encoding.published_context import PublishedContext
from components.core.compute.metrics import gold_ranks, hit_at_k
from components.experiments.parts.captioned_pairs import (
    PairSets,
    PicturePair,
    caption_scores,
    has_java,
    scorers,
)
from components.test_sets.pictures import picture_file
from components.test_sets.readers import spot_the_difference

CAPTIONING = "difference_captioning"
_EXAMPLES = 3
"""Captions that are printed."""


def score(context: PublishedContext) -> Scores:
    """Recall@k of pairs, one query per sentence; BLEU-4, METEOR, ROUGE-L and CIDEr-D of a caption for each pair."""
    name = CAPTIONING
    # Checked before minutes of training.
    scorers()
    if not has_java():
        print(f"{name}: METEOR is skipped, because it needs Java: install a JRE and add --overwrite", file=sys.stderr)
    from components.experiments.parts.clip4idc_training import run

    splits = PairSets(_split(context, "train"), _split(context, "val"), _split(context, "test"))
    result = run(context, splits)
    ranks = gold_ranks(result.queries, result.pairs, result.gold, ties="pessimistic")
    values = {f"{name}/recall_at_{k}": hit_at_k(ranks, k) for k in context.ks}
    pictures = dict.fromkeys(values, result.gold)
    scored = caption_scores(result.captions, result.references)
    values |= {f"{name}/rouge_l": scored.rouge_l, f"{name}/cider": scored.cider}
    scalars = {f"{name}/bleu_4": scored.bleu_4}
    if scored.meteor is not None:
        scalars[f"{name}/meteor"] = scored.meteor
    for caption, references in zip(result.captions[:_EXAMPLES], result.references, strict=False):
        print(f"{name}: caption '{caption}', reference '{references[0]}'", file=sys.stderr)
    return Scores(values, scalars=scalars, pictures=pictures)


def _split(context: PublishedContext, split: Literal["train", "val", "test"]) -> list[PicturePair]:
    pairs = []
    for image, sentences in spot_the_difference.read_frame_pairs(context, split).items():
        paths = (context.folder / spot_the_difference.IMAGES / name for name in spot_the_difference.frame_names(image))
        before, after = map(picture_file, paths)
        pairs.append(PicturePair(before, after, tuple(sentences)))
    return pairs


BENCHMARKS = (
    Benchmark(
        name=CAPTIONING,
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
