"""Spot-the-Difference (Jhamtani 2018): pairs of frames of a camera, told apart by people, found and described.

`spot_the_difference` finds the pair of images that a sentence about their difference describes. PC-CLIP's table 12
gives recall@5 and @10 of CLIP4IDC, a model with a fusion head trained on this data set. Here no head is trained: a
pair's feature is the difference that PC-CLIP trains on, image 2 less image 1, so figures are not those of that table.
As in CLIP4IDC, rows of one image id are one pair, every sentence is a query, and all pairs of the test split are the
gallery. Some sentences say that nothing has changed; no encoder can place them.

`difference_captioning` also writes such sentences. PC-CLIP's tables 12 and 13 integrate CLIP into CLIP4IDC (Guo et al.
2022), which learns on this data set in two stages: pairs and sentences learn to find each other, then a decoder learns
to write. Here both stages learn on top of frozen towers, in minutes and not hours; the paper fine-tunes the towers too.
Encoders that share an image tower differ by what their text towers say of the sentences that pairs learn to match, and
of the words that the decoder starts with. `difference_captioning_embedded` is the same on drawn pairs, without files.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np

from components.benchmarks.benchmark import Benchmark, Need, Tested
from components.benchmarks.captioning.pairs import PairSets, PicturePair
from components.benchmarks.encoding.pictures import picture_file
from components.benchmarks.encoding.published_context import PublishedContext, read_rows
from components.benchmarks.protocols.caption_scores import caption_scores, has_java, require_scorers
from components.benchmarks.protocols.geometry import difference_features
from components.benchmarks.scores import Scores, grouped, metrics
from components.core.errors import InputError
from components.core.metrics import gold_ranks, hit_at_k

NAME, CAPTIONING = "spot_the_difference", "difference_captioning"
TEST_ROWS = 1404
IMAGES = "resized_images"
_SHOWN = 3
"""Captions that are shown to who scores."""
_FILE_NAME = re.compile(r"\w[\w.-]*")


def read_pairs(context: PublishedContext, split: Literal["train", "val", "test"]) -> dict[str, list[str]]:
    """Image id -> the sentences about its pair, in the file's order; rows of one id are one pair, as in CLIP4IDC.

    Raises:
        InputError: the file is damaged, has no sentences, names a picture outside its folder, or is not as published.
    """
    path = f"annotations/{split}.json"
    rows = read_rows(context, path, {"img_id": str, "sentences": list})
    if split == "test":
        context.expect(path, len(rows), TEST_ROWS)
    pairs: dict[str, list[str]] = {}
    for row in rows:
        if not _FILE_NAME.fullmatch(row["img_id"]):
            raise InputError(
                f"{context.folder / path}: img_id {row['img_id'][:60]!r} is no picture's name: fetch it again"
            )
        told = [sentence.strip() for sentence in row["sentences"] if isinstance(sentence, str)]
        pairs.setdefault(row["img_id"], []).extend(sentence for sentence in told if sentence)
    if not any(pairs.values()):
        raise InputError(f"{context.folder / path} has no sentences: fetch it again")
    return pairs


def pair_files(image: str) -> tuple[str, str]:
    """Names of the two pictures of a pair."""
    return f"{image}.png", f"{image}_2.png"


def score(context: PublishedContext) -> Scores:
    """Recall@k of image pairs, one query per sentence."""
    pairs = read_pairs(context, "test")
    before, after = (
        np.asarray(context.image_files(IMAGES, side)) for side in zip(*map(pair_files, pairs), strict=True)
    )
    queries = context.texts([sentence for told in pairs.values() for sentence in told])
    gold = np.repeat(np.arange(len(pairs), dtype=np.int64), [len(told) for told in pairs.values()])
    ranks = gold_ranks(queries, difference_features(after, before), gold, ties="pessimistic")
    return grouped(NAME, {f"recall_at_{k}": hit_at_k(ranks, k) for k in context.ks}, gold)


def tested(context: PublishedContext) -> Tested:
    """All sentences, and both images of each pair."""
    pairs = read_pairs(context, "test")
    files = [context.folder / IMAGES / name for image in pairs for name in pair_files(image)]
    return Tested([sentence for told in pairs.values() for sentence in told], files)


def score_captioning(context: PublishedContext, name: str, read: Callable[[PublishedContext], PairSets]) -> Scores:
    """Recall@k of pairs, one query per sentence; BLEU-4, METEOR, ROUGE-L and CIDEr-D of a caption for each pair."""
    # Before minutes of learning, not behind them.
    require_scorers()
    if not has_java():
        print(
            f"{name}: METEOR is left out, as it needs Java: install a JRE and run again with --again", file=sys.stderr
        )
    from components.benchmarks.captioning.learning import run

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
    return PairSets(_split(context, "train"), _split(context, "val"), _split(context, "test"))


def _split(context: PublishedContext, split: Literal["train", "val", "test"]) -> list[PicturePair]:
    found = []
    for image, sentences in read_pairs(context, split).items():
        before, after = (picture_file(context.folder / IMAGES / name) for name in pair_files(image))
        found.append(PicturePair(before, after, tuple(sentences)))
    return found


def _drawn(context: PublishedContext) -> PairSets:
    from components.benchmarks.captioning.drawn_changes import drawn_pairs

    return drawn_pairs(context.seed)


_SOURCE = "github.com/harsh19/spot-the-diff"
_RECALL = metrics("a pair as similar as the right one is ranked first", "recall_at_k")


def _need(split: str, what: str, size: str) -> Need:
    return Need(f"annotations/{split}.json", what, size, "not stated", f"{_SOURCE}, data/annotations")


_TEST = (
    _need("test", f"{TEST_ROWS:,} rows", "170 kB"),
    Need(IMAGES, "<id>.png and <id>_2.png of every pair", "1.5 GB", "VIRAT, research only",
         f"{_SOURCE}, data/get_images.txt"),
)  # fmt: skip
_LEARNED_FROM = (
    _need("train", "what is learned from", "1.2 MB"),
    _need("val", "what says when it is learned", "200 kB"),
)


def _captioning(
    name: str, folder: str, needs: tuple[Need, ...], what: str, read: Callable[[PublishedContext], PairSets]
) -> Benchmark[PublishedContext]:
    words = metrics("none: captions are not compared with each other", "bleu_4", "meteor", "rouge_l", "cider")
    return Benchmark(
        name=name,
        version=1,
        protocol=f"CLIP4IDC's two stages, learned on frozen towers from {what}; COCO's caption metrics",
        citation="CLIP4IDC (arXiv 2206.00629), PC-CLIP (arXiv 2409.09721), appendix C.3",
        folder=folder,
        needs=needs,
        metrics=(*_RECALL, *words),
        score=partial(score_captioning, name=name, read=read),
    )


BENCHMARKS = (
    Benchmark(
        name=NAME,
        version=2,
        protocol="zero-shot: cosine of sentences with image 2 less image 1; pairs and queries as in CLIP4IDC",
        citation="Spot-the-Difference (arXiv 1808.10584), PC-CLIP (arXiv 2409.09721), appendix C.3",
        folder=NAME,
        needs=_TEST,
        metrics=_RECALL,
        score=score,
        tested=tested,
    ),
    _captioning(CAPTIONING, NAME, (*_LEARNED_FROM, *_TEST), "Spot-the-Difference", _published),
    _captioning(f"{CAPTIONING}_embedded", "embedded", (), "drawn scenes that differ in one fact", _drawn),
)
