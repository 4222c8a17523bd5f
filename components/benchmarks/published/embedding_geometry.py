"""How an encoder's features lie in their space: PC-CLIP's table 7, opposites, modality gap, uniformity, analogies.

Formats:

- `comparison_distance` reads `comparisons.json`, a JSON list of rows such as
  `{"dataset": "cifar100", "class_a": "crab", "class_b": "lobster", "difference": "Crabs have ..."}`: how A differs from
  B. The paper has 3 pairs for each of 5 data sets, written by GPT-4 and published inside its code only
  (github.com/dsam99/pc_clip, src/utils.py). Where a data set also has the row of B and A, their opposition is measured.
- `caption_differences` reads a table `differences` of components/core/records.py.
- `modality_gap` reads COCO's captions of 2017 and the images; the first caption of each image is its pair.
- `analogies` reads Mikolov's `questions-words.txt`: lines of four words, below lines such as ": family".
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

from components.benchmarks.benchmark import Benchmark, Need
from components.benchmarks.encoding.context import RawEncoder
from components.benchmarks.encoding.published_context import PublishedContext, checked, read_rows
from components.benchmarks.protocols import geometry
from components.benchmarks.published.karpathy_retrieval import VAL2017_NEEDS
from components.benchmarks.scores import Scores, metrics
from components.core.errors import InputError
from components.core.metrics import Indices, Reals
from components.core.records import DIFFERENCES

COMPARISONS, CAPTIONS, GAP, ANALOGIES = "comparison_distance", "caption_differences", "modality_gap", "analogies"
PROMPTS = {"": "This is a photo of {}", "_released": "A photo of a {}"}
"""Ending of a group -> prompt: of section 4.3, and of the released test_embeddings.py.

The released code leaves the features of classes as long as the text tower gives them.
"""
DATASETS, PAIRS_EACH, COCO_IMAGES = 5, 3, 5000
SEMANTIC, SYNTACTIC = 8869, 10675
_SYNTACTIC = "gram"
"""How the names of syntactic sections begin."""


def score_comparisons(context: PublishedContext) -> Scores:
    """d(f_A - f_B, f_{A-B}) and its reverse for every pair of classes, by data set."""
    columns = {"dataset": str, "class_a": str, "class_b": str, "difference": str}
    rows = read_rows(context, "comparisons.json", columns)
    wrong = [row["dataset"] for row in rows if not re.fullmatch(r"[a-z0-9_]+", row["dataset"])]
    if wrong:
        raise InputError(
            f"{context.folder / 'comparisons.json'}: dataset '{wrong[0]}': write small letters, digits and _ only"
        )
    sets: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        sets[row["dataset"]].append(row)
    context.expect("comparisons.json: data sets", len(sets), DATASETS)
    values: dict[str, Reals] = {}
    raw = isinstance(context.under_test.encoder, RawEncoder)
    if not raw:
        context.left_out.append("..._released: the encoder gives unit features alone")
    for dataset, found in sets.items():
        pairs = {frozenset((row["class_a"], row["class_b"])) for row in found}
        context.expect(f"comparisons.json: pairs of {dataset}", len(pairs), PAIRS_EACH)
        for ending, prompt in PROMPTS.items():
            if ending and not raw:
                continue
            named = [(prompt.format(row["class_a"]), prompt.format(row["class_b"]), row["difference"]) for row in found]
            values |= _distances(context, f"{COMPARISONS}/{dataset}{ending}", named, raw=bool(ending))
    return Scores(values)


def score_captions(context: PublishedContext) -> Scores:
    """The same for captions: how far the difference of two captions' features is from that of a text about it."""
    table = DIFFERENCES.read(context.folder / "differences.parquet", ["caption", "other_caption", "difference"])
    told = [(row["caption"], row["other_caption"], row["difference"]) for row in table.to_pylist()]
    if not told:
        raise InputError(f"{context.folder / 'differences.parquet'} has no rows: run `dvc repro` to make it")
    return Scores(_distances(context, CAPTIONS, told))


def _distances(
    context: PublishedContext, name: str, told: list[tuple[str, str, str]], *, raw: bool = False
) -> dict[str, Reals]:
    """Distances of pairs of texts, as long as they come if `raw`, with a text about how the first differs."""
    ones, others, differences = zip(*told, strict=True)
    first, second = (context.raw_texts(texts) if raw else context.texts(texts) for texts in (ones, others))
    difference = context.texts(differences)
    found = {
        f"{name}/comparison": geometry.comparison_distance(first, second, difference),
        f"{name}/reverse_comparison": geometry.reverse_comparison_distance(first, second, difference),
    }
    rows = {(one, other): row for row, (one, other, _) in enumerate(told)}
    both = [(rows[pair], rows[pair[::-1]]) for pair in rows if pair < pair[::-1] and pair[::-1] in rows]
    if both:
        forward, backward = np.array(both).T
        found[f"{name}/antisymmetry"] = geometry.antisymmetry(difference[forward], difference[backward])
    return found


def score_gap(context: PublishedContext) -> Scores:
    """Modality gap, alignment of images with their captions, and uniformity of each modality."""
    captions = _first_captions(context)
    context.expect("captions_val2017.json: images", len(captions), COCO_IMAGES)
    if len(captions) < 2:
        raise InputError(f"{context.folder}: {len(captions)} images with captions: complete the data")
    images = np.asarray(context.image_files("val2017", captions))
    texts = context.texts(list(captions.values()))
    return Scores(
        {f"{GAP}/alignment": geometry.alignment(images, texts)},
        scalars={
            f"{GAP}/gap": geometry.modality_gap(images, texts),
            f"{GAP}/images/uniformity": geometry.uniformity(images),
            f"{GAP}/texts/uniformity": geometry.uniformity(texts),
        },
    )


def _first_captions(context: PublishedContext) -> dict[str, str]:
    """File name -> the image's caption with the lowest id, in the order of image ids."""
    path = "annotations/captions_val2017.json"
    content = context.read_json(path)
    parts = [content.get(part) if isinstance(content, dict) else None for part in ("images", "annotations")]
    if not all(isinstance(part, list) for part in parts):
        raise InputError(f"{context.folder / path} has no lists 'images' and 'annotations': fetch it again")
    images = checked(context, f"{path}: images", parts[0] or [], {"id": int, "file_name": str})
    told = checked(context, f"{path}: annotations", parts[1] or [], {"id": int, "image_id": int, "caption": str})
    # Later ones are overwritten by earlier ones.
    captions = {row["image_id"]: row["caption"].strip() for row in sorted(told, key=lambda row: -row["id"])}
    found = sorted((row for row in images if row["id"] in captions), key=lambda row: int(row["id"]))
    return {row["file_name"]: captions[row["id"]] for row in found}


def score_analogies(context: PublishedContext) -> Scores:
    """Share of questions whose word is the nearest, over all of the file's words: all, semantic and syntactic ones."""
    words, questions, syntactic = _questions(context)
    context.expect("questions-words.txt: semantic questions", int((~syntactic).sum()), SEMANTIC)
    context.expect("questions-words.txt: syntactic questions", int(syntactic.sum()), SYNTACTIC)
    right = (geometry.analogy_ranks(context.texts(words), questions) == 0).astype(np.float64)
    return Scores(
        {
            f"{ANALOGIES}/accuracy": right,
            f"{ANALOGIES}/semantic/accuracy": right[~syntactic],
            f"{ANALOGIES}/syntactic/accuracy": right[syntactic],
        }
    )


def _questions(context: PublishedContext) -> tuple[list[str], Indices, npt.NDArray[np.bool_]]:
    """All words, the rows of each question's four `[questions, 4]`, and whether it is syntactic `[questions]`."""
    path = context.folder / "questions-words.txt"
    try:
        lines = path.read_text("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text ({error.reason}): fetch it again") from None
    asked, syntactic, section = [], [], ""
    for number, line in enumerate(lines, 1):
        if line.startswith(":"):
            section = line[1:].strip()
        elif line.strip():
            if len(line.split()) != 4 or not section:
                raise InputError(f"{path}: line {number} is no question of four words in a section: fetch it again")
            asked.append(line.split())
            syntactic.append(section.startswith(_SYNTACTIC))
    if not asked:
        raise InputError(f"{path} has no questions: fetch it again")
    words = sorted({word for four in asked for word in four})
    rows = {word: row for row, word in enumerate(words)}
    return words, np.array([[rows[word] for word in four] for four in asked]), np.array(syntactic)


_NONE = "none: a distance"
_DISTANCES = (
    *metrics(_NONE, "comparison", higher_is_better=False),
    *metrics(_NONE, "reverse_comparison", "antisymmetry"),
)

BENCHMARKS = (
    Benchmark(
        name=COMPARISONS,
        version=2,
        protocol="PC-CLIP, table 7: cosine distance, mean over pairs; groups with the paper's and the released prompt",
        citation="PC-CLIP (arXiv 2409.09721)",
        folder="pc_clip_comparisons",
        needs=(
            Need(
                "comparisons.json", "3 pairs for each of 5 data sets", "5 kB", "not stated", "the authors' src/utils.py"
            ),
        ),
        metrics=_DISTANCES,
        score=score_comparisons,
        text_only=True,
    ),
    Benchmark(
        name=CAPTIONS,
        version=1,
        protocol="PC-CLIP's released test_embeddings.py: the distances of table 7 for captions",
        citation="PC-CLIP (arXiv 2409.09721)",
        folder="caption_differences",
        needs=(Need("differences.parquet", "a table `differences`", "1 MB", "yours", "prompt task difference"),),
        metrics=_DISTANCES,
        score=score_captions,
        text_only=True,
    ),
    Benchmark(
        name=GAP,
        version=1,
        protocol="gap of means of unit features; alignment with alpha 2, uniformity with t 2; first captions of COCO",
        citation="Liang et al. 2022 (arXiv 2203.02053), Wang and Isola 2020 (arXiv 2005.10242)",
        folder="coco",
        needs=VAL2017_NEEDS,
        metrics=metrics(_NONE, "gap", "alignment", "uniformity", higher_is_better=False),
        score=score_gap,
    ),
    Benchmark(
        name=ANALOGIES,
        version=1,
        protocol="nearest to b - a + c among the file's words without these three, case kept",
        citation="Mikolov et al. 2013 (arXiv 1301.3781)",
        folder="analogies",
        needs=(Need("questions-words.txt", "19,544 questions", "1 MB", "Apache-2.0", "github.com/tmikolov/word2vec"),),
        metrics=metrics("a word as near as the right one is taken for it", "accuracy"),
        score=score_analogies,
        text_only=True,
    ),
)
