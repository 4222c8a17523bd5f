"""SugarCrepe and SugarCrepe++: an image must be closer to its caption than to a fluent but false sentence.

`sugar_crepe` (Hsieh et al. 2023) requires a strict inequality for each row. The paper reports every subset and
discusses them by type; later papers quote the mean of a type's subsets, each counted once, reported as `replace`,
`swap` and `add`. There is no official average of all. (CLIP_benchmark counts ties as right instead.)

`sugar_crepe_pp` (Dumpala et al. 2024): two captions with the same meaning must both beat one with another meaning.
SemCLIP's four numbers exist twice. `sugar_crepe_pp_semclip` scores all rows of the authors' five files.
`sugar_crepe_pp_semclip_released` scores the 475 test rows of SemCLIP's own file, as its released code and so its table
1 does, with squashed images and ImageNet's mean. As a second row of an image counts as a miss, fewer rows give a higher
top-1: no encoder can exceed 32.4 over all rows, and 84.4 over the 475.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from components.core.compute.metrics import Features, Indices
from components.core.system.errors import InputError
from components.data.test_sets.readers import sugar_crepe as reader
from components.encoders.adapter.images import SQUASHED
from components.evaluation.scoring.benchmark import Benchmark, Scores, grouped, metrics
from components.evaluation.scoring.protocols.choices import (
    SEMCLIP_METRICS,
    group_numbers,
    image_triplets,
    semclip_scores,
    text_triplets,
    true_over_false,
)
from components.evaluation.scoring.published_context import NO_CHANGES, PublishedContext

PP, SEMCLIP = "sugar_crepe_pp", "sugar_crepe_pp_semclip"
_TIE = "a tie is a failure"


def score(context: PublishedContext) -> Scores:
    """Accuracy of each subset, and of each type as the mean of its subsets."""
    scores = Scores({})
    for kind, subsets in reader.TYPES.items():
        right, names = [], []
        for subset, count in subsets.items():
            rows = reader.read_subset(context, subset, reader.PAIR, count)
            images, pictures = _shown(context, rows)
            right.append(true_over_false(images, *context.columns(rows, *reader.PAIR)))
            names += reader.picture_names(rows)
            scores.update(grouped(f"{reader.SUGAR_CREPE}/{subset}", {"accuracy": right[-1]}, pictures))
        name = f"{reader.SUGAR_CREPE}/{kind}/accuracy"
        strata = np.repeat(np.arange(len(right)), list(map(len, right)))
        scores.update(Scores({name: np.concatenate(right)}, {name: strata}, pictures={name: group_numbers(names)}))
    return scores


def score_text(context: PublishedContext) -> Scores:
    """TOT: the two captions are closer to each other than each is to the negative one (section 4)."""
    scores = Scores({})
    for subset, count in reader.SUBSETS.items():
        rows = reader.read_subset(context, subset, reader.TRIPLET, count)
        found = {"tot": text_triplets(*context.columns(rows, *reader.TRIPLET))}
        scores.update(grouped(f"{reader.TEXT}/{subset}", found, group_numbers(reader.picture_names(rows))))
    return scores


def score_images(context: PublishedContext) -> Scores:
    """ITT: both captions are closer to the image than the negative one; and its two halves."""
    scores = Scores({})
    for subset, count in reader.SUBSETS.items():
        rows = reader.read_subset(context, subset, reader.TRIPLET, count)
        images, pictures = _shown(context, rows)
        parts = image_triplets(images, *context.columns(rows, *reader.TRIPLET))
        scores.update(grouped(f"{PP}/{subset}", parts, pictures))
    return scores


def score_semclip(context: PublishedContext) -> Scores:
    """SemCLIP's four numbers over all rows (its section 4, equation 8)."""
    rows = [
        row
        for subset, count in reader.SUBSETS.items()
        for row in reader.read_subset(context, subset, reader.TRIPLET, count)
    ]
    images, pictures = _shown(context, rows)
    return semclip_scores(SEMCLIP, pictures, images, *context.columns(rows, *reader.TRIPLET))


def score_semclip_released(context: PublishedContext) -> Scores:
    """The same over the rows that the released code tests."""
    rows, held = reader.semclip_rows(context)
    context.expect(reader.CSV, len(rows), reader.ROWS)
    if not held:
        raise InputError(
            f"{context.folder / reader.CSV} has {len(rows)} rows, of which a tenth is tested: fetch all of it"
        )
    images, pictures = _shown(context, held, SQUASHED)
    return semclip_scores(reader.SEMCLIP_RELEASED, pictures, images, *context.columns(held, *reader.CSV_COLUMNS))


def _shown(
    context: PublishedContext, rows: Sequence[dict[str, Any]], changes: Mapping[str, Any] = NO_CHANGES
) -> tuple[Features, Indices]:
    """Features `[rows, dim]` and number `[rows]` of each row's picture."""
    names = reader.picture_names(rows)
    return context.image_files("images", names, changes), group_numbers(names)


_OWN = partial(
    Benchmark[PublishedContext],
    version=2,
    protocol="released code: strict inequalities, each subset by itself",
    citation="SugarCrepe++ (arXiv 2406.11171)",
    folder=reader.PP_FOLDER,
)
_OF_SEMCLIP = partial(
    Benchmark[PublishedContext], citation="SemCLIP (arXiv 2511.16527)", folder=reader.PP_FOLDER, metrics=SEMCLIP_METRICS
)

BENCHMARKS = (
    Benchmark(
        name=reader.SUGAR_CREPE,
        version=2,
        protocol="released code: strict inequality, each subset by itself; types are means of their subsets",
        citation="SugarCrepe (arXiv 2306.14610)",
        folder=reader.FOLDER,
        needs=reader.FILES,
        metrics=metrics(_TIE, "accuracy"),
        score=score,
    ),
    _OWN(name=reader.TEXT, needs=reader.PP_FILES, metrics=metrics(_TIE, "tot"), score=score_text, text_only=True),
    _OWN(
        name=PP,
        needs=(*reader.PP_FILES, reader.IMAGES),
        metrics=metrics(_TIE, "itt", "i_p1_n", "i_p2_n"),
        score=score_images,
    ),
    _OF_SEMCLIP(
        name=SEMCLIP,
        version=2,
        protocol="SemCLIP, all rows pooled: the negative caption stands for the negation; composite of equation 8",
        needs=(*reader.PP_FILES, reader.IMAGES),
        score=score_semclip,
    ),
    _OF_SEMCLIP(
        name=reader.SEMCLIP_RELEASED,
        version=1,
        protocol="SemCLIP's released code: a tenth of its file's rows by seed 42, squashed images; equation 8",
        needs=reader.CSV_FILES,
        score=score_semclip_released,
    ),
)
