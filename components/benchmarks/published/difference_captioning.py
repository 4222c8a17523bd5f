"""Image-difference captioning: find a pair of pictures by a sentence about its difference, and write such a sentence.

PC-CLIP's tables 12 and 13 integrate CLIP into CLIP4IDC (Guo et al. 2022), which learns on Spot-the-Difference in two
stages: pairs and sentences learn to find each other, then a decoder learns to write. Here both stages learn on top of
frozen towers, in minutes and not hours; the paper fine-tunes the towers too. Encoders that share an image tower differ
by what their text towers say of the sentences that pairs learn to match, and of the words that the decoder starts with.

`difference_captioning_embedded` is the same on drawn pairs, and needs no files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Literal

from components.benchmarks.benchmark import Benchmark, Need
from components.benchmarks.captioning.pairs import PairSets, PicturePair
from components.benchmarks.encoding.picture_source import picture_file
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.files.spot_the_difference import (
    FOLDER,
    PICTURES,
    TEST_ROWS,
    picture_paths,
    read_pairs,
    split_need,
)
from components.benchmarks.protocols.caption_scores import caption_scores, has_java, require_scorers
from components.benchmarks.published import PublishedBenchmark
from components.benchmarks.scores import Metric, Scores
from components.core.metrics import gold_ranks, hit_at_k

NAME = "difference_captioning"
_SHOWN = 3
"""Captions that are shown to who scores."""


def score(context: PublishedContext, name: str, read: Callable[[PublishedContext], PairSets]) -> Scores:
    """Recall@k of pairs, one query per sentence; BLEU-4, METEOR, ROUGE-L and CIDEr-D of a caption for each pair.

    Raises:
        InputError: files are missing or not as published, the encoder sees no images, or a package is missing.
    """
    # Before minutes of learning, not behind them.
    require_scorers()
    if not has_java():
        print(
            f"{name}: METEOR is left out, as it needs Java: install a JRE and run again with --again", file=sys.stderr
        )
    from components.benchmarks.captioning.system import run

    found = run(context, read(context))
    ranks = gold_ranks(found.queries, found.pairs, found.gold, ties="pessimistic")
    values = {f"{name}/recall_at_{k}": hit_at_k(ranks, k) for k in context.ks}
    pictures = dict.fromkeys(values, found.gold)
    worth = caption_scores(found.captions, found.references)
    values |= {f"{name}/rouge_l": worth.rouge_l, f"{name}/cider": worth.cider}
    scalars = {f"{name}/bleu_4": worth.bleu_4}
    if worth.meteor is not None:
        scalars[f"{name}/meteor"] = worth.meteor
    for caption, references in zip(found.captions[:_SHOWN], found.references, strict=False):
        print(f"{name}: '{caption}' is written of a pair that is described by '{references[0]}'", file=sys.stderr)
    return Scores(values, scalars=scalars, pictures=pictures)


def _published(context: PublishedContext) -> PairSets:
    return PairSets(*(_split(context, split) for split in ("train", "val", "test")))


def _split(context: PublishedContext, split: Literal["train", "val", "test"]) -> list[PicturePair]:
    found = []
    for image, sentences in read_pairs(context, split).items():
        before, after = map(picture_file, picture_paths(context, image))
        found.append(PicturePair(before, after, tuple(sentences)))
    return found


def _drawn(context: PublishedContext) -> PairSets:
    from components.benchmarks.captioning.drawn_changes import drawn_pairs

    return drawn_pairs(context.seed)


_SOURCE = "github.com/harsh19/spot-the-diff"
_TIE = "none: captions are not compared with each other"
_METRICS = (
    Metric("recall_at_k", higher_is_better=True, ties="a pair as similar as the right one is ranked first"),
    *(Metric(name, higher_is_better=True, ties=_TIE) for name in ("bleu_4", "meteor", "rouge_l", "cider")),
)


def _benchmark(
    name: str, folder: str, needs: tuple[Need, ...], what: str, read: Callable[..., PairSets]
) -> PublishedBenchmark:
    return Benchmark(
        name=name,
        version=1,
        protocol=f"CLIP4IDC's two stages, learned on frozen towers from {what}; COCO's caption metrics",
        citation="CLIP4IDC (arXiv 2206.00629), PC-CLIP (arXiv 2409.09721), appendix C.3",
        folder=folder,
        needs=needs,
        metrics=_METRICS,
        score=partial(score, name=name, read=read),
    )


BENCHMARKS = (
    _benchmark(
        NAME,
        FOLDER,
        (
            split_need("train", "what is learned from", "1.2 MB"),
            split_need("val", "what says when it is learned", "200 kB"),
            split_need("test", f"{TEST_ROWS:,} rows", "170 kB"),
            PICTURES,
        ),
        "Spot-the-Difference",
        _published,
    ),
    _benchmark(f"{NAME}_embedded", "embedded", (), "drawn scenes that differ in one fact", _drawn),
)
