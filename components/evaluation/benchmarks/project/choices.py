"""Is the right caption more similar to its image than a wrong one? Half-truths, negations, swaps and triplets."""

from __future__ import annotations

import numpy as np

from components.core.compute.metrics import Reals, gold_ranks, hit_at_k, strictly_greater
from components.core.system.errors import InputError
from components.core.tables.records import HALF_TRUTHS, NEGATION_QUERIES, SWAPS
from components.evaluation.benchmarks.project import on_test_split
from components.evaluation.scoring.benchmark import Scores, grouped, metrics
from components.evaluation.scoring.context import QUERIES_FILE, ProjectContext
from components.evaluation.scoring.protocols.choices import (
    half_truth_choices,
    image_triplets,
    row_cosine,
    text_triplets,
    true_over_false,
)

HALF_TRUTHS_FILE, NEGATIONS_FILE, SWAPS_FILE = "half_truths.parquet", "negations.parquet", "swaps.parquet"
SWAP_KINDS = ("relation", "attribute", "mixed")
"""`mixed` is that of queries that a language model wrote: they may exchange either."""
_FAILURE = "a tie is a failure"


def score_half_truths(context: ProjectContext) -> Scores:
    """Does an added false detail make a caption less similar to its image? (Kargi et al. 2026, arXiv 2602.23906)

    Chance is one half for `accuracy` and one sixth for `ordered_accuracy`. An encoder that prefers shorter texts has a
    high `accuracy`, but not a high `ordered_accuracy`, which also includes a longer true caption. Values are also
    reported per kind of detail.
    """
    table, gold = context.read_shown(HALF_TRUTHS, HALF_TRUTHS_FILE)
    texts = context.columns(table, "truth", "half_truth", "full_truth")
    columns = half_truth_choices(context.image_features[gold], *texts)
    return grouped("half_truths", columns, gold, {"kind": table["kind"].to_pylist()})


def score_negations(context: ProjectContext) -> Scores:
    """Is a caption distinguished from its negation, and do caption and paraphrase retrieve its image? (SemCLIP, CC-Neg)

    `composite` is SemCLIP's equation 8 (section 4), which clamps a mean: below an accuracy of one half over negations
    every query counts 0 for its negation. Its mean is the published score; its interval treats the side of the clamp as
    fixed. Values over negations are also reported per cue.
    """
    table, gold = context.read_shown(NEGATION_QUERIES, NEGATIONS_FILE)
    captions, negations, paraphrases = context.columns(table, "caption", "negation", "paraphrase")
    over: dict[str, Reals] = {
        "original_over_negation": true_over_false(context.image_features[gold], captions, negations),
        "paraphrase_over_negation": strictly_greater(
            row_cosine(captions, paraphrases), row_cosine(captions, negations)
        ),
    }
    top = {
        f"{name}_top1": hit_at_k(gold_ranks(texts, context.image_features, gold), 1)
        for name, texts in (("caption", captions), ("paraphrase", paraphrases))
    }
    right = over["original_over_negation"]
    # The mean of the last part is max(0, 2 (accuracy - 1/2)).
    clamped = 2 * right - 1 if right.mean() > 0.5 else np.zeros_like(right)
    composite = (top["caption_top1"] + top["paraphrase_top1"] + clamped) / 3
    overall = over | top | {"composite": composite}
    return grouped("negations", overall, gold, {"cue": table["cue"].to_pylist()}, within=over)


def score_swaps(context: ProjectContext) -> Scores:
    """Is the true caption closer to the image than one with two things swapped? (ARO: Yuksekgonul et al. 2023)

    Micro accuracy is the mean over rows; macro accuracy is the mean over the table's groups (ARO's own average).
    """
    table, gold = context.read_shown(SWAPS, SWAPS_FILE)
    correct = true_over_false(context.image_features[gold], *context.columns(table, "true_caption", "false_caption"))
    kinds = np.array(table["kind"].to_pylist())
    for kind in set(kinds.tolist()) - set(SWAP_KINDS):
        raise InputError(f"{context.folder / SWAPS_FILE}: kind '{kind}' is unknown: use {', '.join(SWAP_KINDS)}")
    values = {f"swaps/{kind}_accuracy": correct[kinds == kind] for kind in SWAP_KINDS if (kinds == kind).any()}
    pictures = {f"swaps/{kind}_accuracy": gold[kinds == kind] for kind in SWAP_KINDS}
    macro, strata = "swaps/relation_macro_accuracy", {}
    pictures[macro] = pictures["swaps/relation_accuracy"]
    if "swaps/relation_accuracy" in values:
        groups = np.array(table["group"].to_pylist())[kinds == "relation"]
        values[macro] = values["swaps/relation_accuracy"]
        strata[macro] = np.unique(groups, return_inverse=True)[1].astype(np.int64)
    return Scores(values, strata, pictures=pictures)


def score_triplets(context: ProjectContext) -> Scores:
    """Do two captions with the same meaning beat one with two things swapped? (SugarCrepe++: Dumpala et al. 2024)

    P1 is a swap's true caption, P2 the paraphrase of the same image, N the swap's false caption, which has the words of
    P1. `itt` compares both with N at the image, `tot` only compares the texts. Values are also reported per kind of
    swap.
    """
    table, gold = context.read_shown(SWAPS, SWAPS_FILE)
    images = context.image_features[gold]
    first, negative = context.columns(table, "true_caption", "false_caption")
    second = context.texts_of("paraphrase", table["image_id"].to_pylist(), SWAPS_FILE)
    columns = image_triplets(images, first, second, negative) | {"tot": text_triplets(first, second, negative)}
    return grouped("triplets", columns, gold, {"kind": table["kind"].to_pylist()})


TABLE_BENCHMARKS = (
    on_test_split(
        name="half_truths",
        score=score_half_truths,
        files=[HALF_TRUTHS_FILE],
        metrics=metrics(_FAILURE, "accuracy", "ordered_accuracy"),
        key_metrics=("half_truths/accuracy",),
    ),
    on_test_split(
        name="negations",
        score=score_negations,
        files=[NEGATIONS_FILE],
        metrics=(
            *metrics(f"{_FAILURE}, as in SemCLIP's code; CC-Neg's own counts it right", "original_over_negation"),
            *metrics(_FAILURE, "paraphrase_over_negation"),
            *metrics("the earlier image of the test split first", "caption_top1", "paraphrase_top1"),
            *metrics("as in its parts", "composite"),
        ),
        key_metrics=("negations/original_over_negation", "negations/composite"),
    ),
    on_test_split(
        name="swaps",
        score=score_swaps,
        files=[SWAPS_FILE],
        metrics=metrics(
            _FAILURE, "relation_accuracy", "attribute_accuracy", "mixed_accuracy", "relation_macro_accuracy"
        ),
        key_metrics=("swaps/attribute_accuracy", "swaps/relation_accuracy", "swaps/mixed_accuracy"),
    ),
    on_test_split(
        name="triplets",
        score=score_triplets,
        files=[SWAPS_FILE, QUERIES_FILE],
        metrics=metrics(_FAILURE, "itt", "i_p1_n", "i_p2_n", "tot"),
        key_metrics=("triplets/itt",),
    ),
)
