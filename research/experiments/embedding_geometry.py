"""Geometry of an encoder's features: PC-CLIP's table 7, opposites, modality gap and uniformity.

Formats:

- `comparison_distance` reads `comparisons.json`, a JSON list of rows such as
  `{"dataset": "cifar100", "class_a": "crab", "class_b": "lobster", "difference": "Crabs have ..."}`: how A differs from
  B. The paper has 3 pairs for each of 5 data sets, written by GPT-4 and published inside its code only
  (github.com/dsam99/pc_clip, src/utils.py). If a data set also has the row of B and A, their opposition is measured.
- `caption_differences` reads a table `differences` of components/core/tables/records.py.
- `modality_gap` reads COCO's captions of 2017 and the images; the first caption of each image is its pair.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import numpy as np

from components.core.compute.metrics import Features, Reals, finite
from components.core.system.errors import InputError
from components.core.tables.folders import RequiredFile
from components.core.tables.records import DIFFERENCES
from components.data.test_sets.readers.captions import VAL2017
from components.encoders.under_test import RawEncoder
from components.evaluation.scoring.benchmark import Benchmark, Scores, metrics
from components.evaluation.scoring.protocols import geometry
from components.evaluation.scoring.published_context import PublishedContext

COMPARISONS, CAPTIONS, GAP = "comparison_distance", "caption_differences", "modality_gap"
PROMPTS = {"": "This is a photo of {}", "_released": "A photo of a {}"}
"""Suffix of a group -> prompt: of section 4.3, and of the released test_embeddings.py.

The released code does not normalise the features of classes.
"""
DATASETS, PAIRS_EACH, COCO_IMAGES = 5, 3, 5000


def score_comparisons(context: PublishedContext) -> Scores:
    """d(f_A - f_B, f_{A-B}) and its reverse for every pair of classes, by data set."""
    columns = {"dataset": str, "class_a": str, "class_b": str, "difference": str}
    rows = context.read_rows("comparisons.json", columns)
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
        context.left_out.append("..._released: the encoder only returns unit features")
    for dataset, compared in sets.items():
        pairs = {frozenset((row["class_a"], row["class_b"])) for row in compared}
        context.expect(f"comparisons.json: pairs of {dataset}", len(pairs), PAIRS_EACH)
        for ending, prompt in PROMPTS.items():
            if ending and not raw:
                continue
            rows_of = [
                (prompt.format(row["class_a"]), prompt.format(row["class_b"]), row["difference"]) for row in compared
            ]
            values |= _distances(context, f"{COMPARISONS}/{dataset}{ending}", rows_of, raw=bool(ending))
    return Scores(values)


def score_captions(context: PublishedContext) -> Scores:
    """The same for captions: distance of the difference of two captions' features from that of a text about it."""
    table = DIFFERENCES.read(context.folder / "differences.parquet", ["caption", "other_caption", "difference"])
    rows = [(row["caption"], row["other_caption"], row["difference"]) for row in table.to_pylist()]
    if not rows:
        raise InputError(f"{context.folder / 'differences.parquet'} has no rows: run `dvc repro` to make it")
    return Scores(_distances(context, CAPTIONS, rows))


def _distances(
    context: PublishedContext, name: str, rows: list[tuple[str, str, str]], *, raw: bool = False
) -> dict[str, Reals]:
    """Distances of pairs of texts, not normalised if `raw`, from a text about how the first differs."""
    ones, others, differences = zip(*rows, strict=True)
    first, second = (context.raw_texts(texts) if raw else context.texts(texts) for texts in (ones, others))
    difference = context.texts(differences)
    values = {
        f"{name}/comparison": geometry.comparison_distance(first, second, difference),
        f"{name}/reverse_comparison": geometry.comparison_distance(second, first, difference),
    }
    row_of = {(one, other): row for row, (one, other, _) in enumerate(rows)}
    both = [(row_of[pair], row_of[pair[::-1]]) for pair in row_of if pair < pair[::-1] and pair[::-1] in row_of]
    if both:
        forward, backward = np.array(both).T
        values[f"{name}/antisymmetry"] = geometry.antisymmetry(difference[forward], difference[backward])
    return values


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
            f"{GAP}/gap": modality_gap(images, texts),
            f"{GAP}/images/uniformity": uniformity(images),
            f"{GAP}/texts/uniformity": uniformity(texts),
        },
    )


def _first_captions(context: PublishedContext) -> dict[str, str]:
    """File name -> the image's caption with the lowest id, in the order of image ids."""
    path = "annotations/captions_val2017.json"
    listed, annotations = context.read_lists(path, "images", "annotations")
    images = context.complete_rows(f"{path}: images", listed, {"id": int, "file_name": str})
    columns = {"id": int, "image_id": int, "caption": str}
    rows = context.complete_rows(f"{path}: annotations", annotations, columns)
    # Captions with lower ids overwrite those with higher ids.
    captions = {row["image_id"]: row["caption"].strip() for row in sorted(rows, key=lambda row: -row["id"])}
    captioned = sorted((row for row in images if row["id"] in captions), key=lambda row: int(row["id"]))
    return {row["file_name"]: captions[row["id"]] for row in captioned}


def modality_gap(images: Features, texts: Features) -> float:
    """Distance of the mean of unit image features `[images, dim]` from that of unit text features `[texts, dim]`
    (Liang et al. 2022, arXiv 2203.02053, section 4.2).
    """
    finite(images, texts)
    return float(np.linalg.norm(images.mean(axis=0, dtype=np.float64) - texts.mean(axis=0, dtype=np.float64)))


def uniformity(features: Features) -> float:
    """Logarithm of the mean Gaussian potential of all pairs of `[items, dim]`, l_uniform for t = 2
    (Wang and Isola 2020, section 4.1); 0 if all features are the same, -4 at best.

    Raises:
        ValueError: there are fewer than two features.
    """
    if len(features) < 2:
        raise ValueError("uniformity needs at least two features")
    return float(np.log(geometry.gaussian_potential(features).mean()))


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
            RequiredFile(
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
        needs=(
            RequiredFile("differences.parquet", "a table `differences`", "1 MB", "yours", "prompt task difference"),
        ),
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
        needs=tuple(VAL2017.files),
        metrics=metrics(_NONE, "gap", "alignment", "uniformity", higher_is_better=False),
        score=score_gap,
    ),
)
