"""COCO-P and COCO-PE: does a paraphrase retrieve the images that the query retrieves? (Cheng et al. 2024, section 3)

The paper reports AO@10 and JS@10 on galleries of COCO's validation images and, for COCO-PE, the unlabeled ones as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from components.core.compute.metrics import Features, Indices
from components.core.system.errors import InputError
from components.core.tables.folders import RequiredFile
from components.data.test_sets.readers import coco_p as reader
from components.evaluation.scoring.benchmark import Benchmark, Scores, grouped, metrics
from components.evaluation.scoring.protocols.retrieval import TIES, paraphrase_agreement
from components.evaluation.scoring.published_context import PublishedContext

LARGE = "coco_pe"
REPORTED = 10
"""The depth that the paper reports."""
RANKED = metrics(TIES, "ao_at_k", "js_at_k", "query_recall_at_k", "paraphrase_recall_at_k")


def score(name: str, folders: Sequence[str], context: PublishedContext) -> Scores:
    """AO@k and JS@k between the lists of query and paraphrase, and recall@k of both."""
    pairs = reader.read_query_pairs(context)
    names, images = gallery(context, folders)
    gold = gold_rows(pairs, names)
    depths = sorted({*context.ks, REPORTED})
    queries, paraphrases = context.texts(pairs.queries), context.texts(pairs.paraphrases)
    return grouped(name, paraphrase_agreement(queries, paraphrases, images, gold, depths), gold)


def gallery(context: PublishedContext, folders: Sequence[str]) -> tuple[list[str], Features]:
    """File names and unit features `[images, dim]` of all images of `folders`, sorted by name in each."""
    names: list[str] = []
    features = []
    for folder in folders:
        paths = reader.image_files(context.folder / folder)
        context.expect(f"{folder}: images", len(paths), reader.IMAGES[folder])
        if paths:
            names += [path.name for path in paths]
            features.append(context.image_files(folder, (path.name for path in paths)))
    if not features:
        raise InputError(f"{context.folder} has no image in {' or '.join(folders)}: put COCO's images there")
    return names, np.concatenate(features)


def gold_rows(pairs: reader.QueryPairs, names: Sequence[str]) -> Indices:
    """Gallery row of each pair's image `[pairs]`."""
    rows = {name: row for row, name in enumerate(names)}
    for row, image in enumerate(pairs.images):
        if image not in rows:
            raise InputError(
                f"{reader.FILE}: row {row} names image '{image}', which the gallery lacks: add it or fix the row"
            )
    return np.array([rows[image] for image in pairs.images], dtype=np.int64)


def _benchmark(name: str, folders: Sequence[str], needs: tuple[RequiredFile, ...]) -> Benchmark[PublishedContext]:
    images = sum(reader.IMAGES[folder] for folder in folders)
    return Benchmark(
        name=name,
        version=2,
        protocol=f"the paper's text: one paraphrase per caption, gallery of {images:,} images",
        citation="Adapting dual-encoder vision-language models for paraphrased retrieval (arXiv 2405.03190)",
        folder=reader.FOLDER,
        needs=needs,
        metrics=RANKED,
        score=partial(score, name, folders),
    )


BENCHMARKS = (
    _benchmark(reader.NAME, (reader.VALIDATION,), (reader.PAIRS_FILE, reader.VALIDATION_FILE)),
    _benchmark(
        LARGE, (reader.VALIDATION, reader.UNLABELED), (reader.PAIRS_FILE, reader.VALIDATION_FILE, reader.UNLABELED_FILE)
    ),
)
