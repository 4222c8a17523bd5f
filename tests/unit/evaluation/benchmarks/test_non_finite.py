"""NaN and infinite numbers: no metric takes them, and no comparison that is false for NaN turns into a good score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from components.core.compute import metrics
from components.evaluation.benchmarks.project import find_benchmark
from components.evaluation.benchmarks.published import difference_classification
from components.evaluation.scoring.benchmark import Correlation, Scores
from components.evaluation.scoring.comparisons import sign_flip_p
from components.evaluation.scoring.correlations import correlation_interval
from components.evaluation.scoring.intervals import mean_interval, paired_interval
from components.evaluation.scoring.protocols import choices, geometry, retrieval, zero_shot
from components.evaluation.scoring.results import summarise
from research.experiments import embedding_geometry, linear_probe
from research.experiments.parts import classes

LABELS, ROWS = np.array([0, 1, 0, 1, 0, 1]), np.arange(6)
F, V, P = (6, 3), (6,), (2, 6, 3)
"""Shapes of features, of values, and of features of two prompts per class."""
WAYS = [f"{way}/recall_at_{k}" for way in retrieval.WAYS for k in retrieval.SUMMED]

PLAIN: list[tuple[list[tuple[int, ...]], list[Callable[..., Any]]]] = [
    ([F], [embedding_geometry.uniformity, geometry.gaussian_potential, zero_shot.unit]),
    ([F, F], [metrics.row_correlations, choices.row_cosine, choices.caption_recall, geometry.difference_features,
              geometry.antisymmetry, embedding_geometry.modality_gap, geometry.alignment, retrieval.pair_cosines,
              classes.predicted, classes.confidence_margins]),
    ([F, F, F], [metrics.rank_correlation, choices.text_triplets, choices.true_over_false, geometry.margins,
                 geometry.comparison_distance]),
    ([F, F, F, F], [choices.image_triplets, choices.half_truth_choices]),
    ([V, V], [metrics.strictly_greater, choices.at_least]),
]  # fmt: skip
"""Functions of arrays only, by the shapes of the arrays."""
CALLS: dict[str, tuple[list[tuple[int, ...]], Callable[..., Any]]] = {
    **{call.__name__: (shapes, call) for shapes, calls in PLAIN for call in calls},
    "average_overlap": ([F, F], lambda a, b: metrics.average_overlap(a, b, 2)),
    "jaccard_similarity": ([F, F], lambda a, b: metrics.jaccard_similarity(a, b, 2)),
    "shared_of_top": ([F, F], lambda a, b: metrics.shared_of_top(a, b, 2)),
    "hit_at_k": ([V], lambda ranks: metrics.hit_at_k(ranks, 2)),
    "top_k": ([F, F], lambda a, b: metrics.top_k(a, b, 2)),
    "gold_ranks": ([F, F], lambda a, b: metrics.gold_ranks(a, b, ROWS)),
    "composite_score": ([(1,), (1,), (1,)], choices.composite_score),
    "semclip_scores": ([F, F, F, F], lambda *four: choices.semclip_scores("x", ROWS, *four)),
    "classified": ([V], lambda values: geometry.classified(values, "right")),
    "pooled": ([V, V], lambda a, b: difference_classification.pooled("x", [a, b], [np.zeros((6, 2), int)] * 2)),
    "probe_answers": ([F, F], lambda a, b: linear_probe.probe_answers(a, LABELS, b, 0)),
    "released_answers": ([F, F], lambda a, b: linear_probe.released_answers(a, LABELS, b, 2, 0)),
    "best_gold_ranks": ([F, F], lambda a, b: retrieval.best_gold_ranks(a, b, ROWS)),
    "caption_recalls": ([F, F], lambda a, b: retrieval.caption_recalls(a, b, ROWS, (1, 2))),
    "recall_sum": ([V] * 6, lambda *values: retrieval.recall_sum(dict(zip(WAYS, values, strict=True)))),
    "paraphrase_agreement": ([F, F, F], lambda *three: retrieval.paraphrase_agreement(*three, ROWS, (1, 2))),
    "averaged": ([F], lambda features: retrieval.averaged(features, ROWS, 6)),
    "spearman_by_subset": ([V, V], lambda a, b: retrieval.spearman_by_subset("x", {"one": (a, b)})),
    "mean_spearman": ([V, V], lambda a, b: retrieval.mean_spearman("x", {"one": (a, b)})),
    "prompt_ensemble": ([P], zero_shot.prompt_ensemble),
    "top_accuracy": ([F, F], lambda a, b: zero_shot.top_accuracy(a, b, LABELS)),
    "accuracy_among": ([F, F], lambda a, b: classes.accuracy_among(a, b, LABELS, {0, 1})),
    "comparative_weights": ([F, F], lambda a, b: zero_shot.comparative_weights(a, b, ROWS, ROWS[::-1], 0.5)),
    "mean_interval": ([V], mean_interval),
    "sign_flip_p": ([V, V], lambda a, b: sign_flip_p(a, b, 10, 0)),
    "paired_interval": ([V, V], paired_interval),
    "correlation_interval": ([V, V], lambda a, b: correlation_interval(Correlation("spearman", a, b), 10, 0)),
    "summarise": ([(1,)], lambda one: summarise(find_benchmark("swaps"), Scores({}, scalars={"x/y": one[0]}), 10, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_every_metric_refuses_numbers_that_are_not_finite(name: str) -> None:
    shapes, call = CALLS[name]
    generator = np.random.default_rng(0)
    for bad in (np.nan, np.inf, -np.inf):
        for chosen in range(len(shapes)):
            arrays = [generator.random(shape) for shape in shapes]
            arrays[chosen].flat[generator.integers(arrays[chosen].size)] = bad
            with pytest.raises(ValueError, match="NaN or infinite"):
                call(*arrays)
