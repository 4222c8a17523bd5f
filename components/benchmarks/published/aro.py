"""VG-Relation and VG-Attribution of ARO: does an image prefer the caption in the right order? (Yuksekgonul et al. 2023)

Format and rules are those of the released code (github.com/mertyg/vision-language-models-are-bows): the image is cut to
the record's box, the options are the false and the true caption, and the true one must be strictly more similar, for
`argmax` takes the first of equals. Published figures are macro averages: over the relations that the authors' notebook
keeps, and over attribute pairs with at least 25 cases. `macro_accuracy` is that; over everything it is
`macro_accuracy_all`; `micro_accuracy` is the plain share of cases, as often quoted by mistake (issue 9 there).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from components.benchmarks.benchmark import Benchmark, Need, Tested
from components.benchmarks.encoding.picture_source import picture_file
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.files.rows import read_rows
from components.benchmarks.protocols.row_pairs import group_numbers, row_cosine
from components.benchmarks.protocols.vg_relations import left_out_relations
from components.benchmarks.scores import Metric, Scores
from components.core.metrics import Reals, strictly_greater

RELATION, ATTRIBUTION = "vg_relation", "vg_attribution"
RELATIONS, ATTRIBUTIONS = 23_937, 28_748
"""Published numbers of cases; those of VG-Relation include the symmetric relations."""
FEWEST = 25
"""Cases below which an attribute pair is left out."""
_COLUMNS = {
    "image_path": str,
    "bbox_x": int,
    "bbox_y": int,
    "bbox_w": int,
    "bbox_h": int,
    "true_caption": str,
    "false_caption": str,
}


def score_relations(context: PublishedContext) -> Scores:
    """Accuracy over relations: `macro_accuracy` without those that are symmetric or too rare."""
    path = "visual_genome_relation.json"
    rows = read_rows(context, path, {**_COLUMNS, "relation_name": str})
    context.expect(path, len(rows), RELATIONS)
    labels = [row["relation_name"] for row in rows]
    dropped = left_out_relations()
    return _averages(RELATION, context, rows, labels, [label not in dropped for label in labels])


def score_attributions(context: PublishedContext) -> Scores:
    """Accuracy over ordered pairs of attributes: `macro_accuracy` without those of fewer than 25 cases."""
    path = "visual_genome_attribution.json"
    rows = read_rows(context, path, {**_COLUMNS, "attributes": list})
    context.expect(path, len(rows), ATTRIBUTIONS)
    labels = ["_".join(map(str, row["attributes"])) for row in rows]
    counts = Counter(labels)
    return _averages(ATTRIBUTION, context, rows, labels, [counts[label] >= FEWEST for label in labels])


def _right(context: PublishedContext, rows: list[dict[str, Any]]) -> Reals:
    """1 for every case whose box is closer to the true caption `[cases]`."""
    boxes = [(row["bbox_x"], row["bbox_y"], row["bbox_w"], row["bbox_h"]) for row in rows]
    pictures = [
        picture_file(context.folder / "images" / row["image_path"], box) for row, box in zip(rows, boxes, strict=True)
    ]
    images = context.images(pictures)
    true, false = (context.texts([row[column] for row in rows]) for column in ("true_caption", "false_caption"))
    return strictly_greater(row_cosine(images, true), row_cosine(images, false))


def _averages(
    name: str, context: PublishedContext, rows: list[dict[str, Any]], labels: Sequence[str], kept: Sequence[bool]
) -> Scores:
    """The three averages of right cases; the headline is left out where no case counts for it."""
    right, shown = _right(context, rows), group_numbers([row["image_path"] for row in rows])
    groups, counted = group_numbers(labels), np.array(kept, dtype=bool)
    values = {f"{name}/micro_accuracy": right, f"{name}/macro_accuracy_all": right}
    pictures = dict.fromkeys(values, shown)
    strata = {f"{name}/macro_accuracy_all": groups}
    if counted.any():
        values[f"{name}/macro_accuracy"] = right[counted]
        strata[f"{name}/macro_accuracy"] = groups[counted]
        pictures[f"{name}/macro_accuracy"] = shown[counted]
    return Scores(values, strata, pictures=pictures)


def tested(path: str, context: PublishedContext) -> Tested:
    """True and false captions, and the images, which are Visual Genome's."""
    rows = read_rows(context, path, _COLUMNS)
    texts = [row[column] for row in rows for column in ("true_caption", "false_caption")]
    return Tested(texts, [context.folder / "images" / row["image_path"] for row in rows], names="VG_100K")


_TIE = "a tie is a failure"
_METRICS = tuple(
    Metric(name, higher_is_better=True, ties=_TIE)
    for name in ("macro_accuracy", "macro_accuracy_all", "micro_accuracy")
)
_SOURCE = "github.com/mertyg/vision-language-models-are-bows"
_IMAGES = Need(
    "images", "Visual Genome images of GQA", "1 GB", "CC BY 4.0 and Flickr terms", f"{_SOURCE}, vgr_vga_images.zip"
)
_CITATION = "When and why vision-language models behave like bags-of-words (arXiv 2210.01936)"

BENCHMARKS = (
    Benchmark(
        name=RELATION,
        version=2,
        protocol="released notebook: box crop, macro over its relations; over all relations and micro beside it",
        citation=_CITATION,
        folder="aro",
        needs=(Need("visual_genome_relation.json", f"{RELATIONS:,} cases", "10 MB", "MIT", _SOURCE), _IMAGES),
        metrics=_METRICS,
        score=score_relations,
        tested=partial(tested, "visual_genome_relation.json"),
    ),
    Benchmark(
        name=ATTRIBUTION,
        version=2,
        protocol="released notebook: box crop, macro over pairs with 25 cases; over all pairs and micro beside it",
        citation=_CITATION,
        folder="aro",
        needs=(Need("visual_genome_attribution.json", f"{ATTRIBUTIONS:,} cases", "15 MB", "MIT", _SOURCE), _IMAGES),
        metrics=_METRICS,
        score=score_attributions,
        tested=partial(tested, "visual_genome_attribution.json"),
    ),
)
