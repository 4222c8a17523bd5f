"""Our metrics against those of clip-benchmark, on random, adversarial, NaN and infinite numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from clip_benchmark.metrics import zeroshot_classification, zeroshot_retrieval
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from components.core.compute import metrics
from components.core.compute.metrics import Features, Indices
from components.evaluation.benchmarks.project import find_benchmark
from components.evaluation.benchmarks.published import difference_classification
from components.evaluation.scoring.benchmark import Correlation, Scores
from components.evaluation.scoring.comparisons import sign_flip_p
from components.evaluation.scoring.correlations import correlation_interval
from components.evaluation.scoring.intervals import mean_interval, paired_interval
from components.evaluation.scoring.protocols import choices, geometry, retrieval, zero_shot
from components.evaluation.scoring.protocols.retrieval import caption_recalls
from components.evaluation.scoring.protocols.zero_shot import top_accuracy
from components.evaluation.scoring.results import summarise
from research.experiments import embedding_geometry, linear_probe
from research.experiments.parts import classes
from research.experiments.parts.classes import predicted

CLOSE = 1e-6
_SMALL = st.integers(-2, 2).map(float)
"""Entries whose products are exact, so that equal similarities are equal to the last bit."""


@pytest.fixture(scope="module", autouse=True)
def _one_element_arrays_are_numbers() -> Iterator[None]:
    """clip-benchmark 1.6.2 calls `float` on arrays of one element, which numpy 2.4 and later refuse."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zeroshot_classification, "float", lambda value: float(np.asarray(value).item()), raising=False)
        yield


def _ranked_as_ours(queries: Features, gallery: Features) -> Tensor:
    scores = torch.from_numpy(queries @ gallery.T).double()
    return scores * len(gallery) - torch.arange(len(gallery))


@st.composite
def _retrieval(draw: st.DrawFn) -> tuple[Features, Features, Indices]:
    """Images, captions and each caption's image: some images have one caption, captions stand in any order."""
    dim, images = draw(st.integers(1, 3)), draw(st.integers(1, 7))
    owners = draw(st.permutations([*range(images), *draw(st.lists(st.integers(0, images - 1), max_size=10))]))
    features = [
        draw(hnp.arrays(np.float32, (rows, dim), elements=_SMALL.map(np.float32))) for rows in (images, len(owners))
    ]
    return features[0], features[1], np.array(owners, dtype=np.int64)


@settings(deadline=None, max_examples=100)
@given(_retrieval())
def test_recall_with_ties_duplicates_and_several_captions(case: tuple[Features, Features, Indices]) -> None:
    images, captions, owners = case
    positive = torch.from_numpy(owners[:, None] == np.arange(len(images)))
    ours = caption_recalls(images, captions, owners, ks=(1, 2, 5))
    ways = {
        "text_to_image": (_ranked_as_ours(captions, images), positive),
        "image_to_text": (_ranked_as_ours(images, captions), positive.T),
    }
    for way, (scores, pairs) in ways.items():
        for k in (1, 2, 5):
            depth = min(k, scores.shape[1])
            theirs = zeroshot_retrieval.recall_at_k(scores, pairs.contiguous(), depth) > 0
            np.testing.assert_array_equal(ours[f"{way}/recall_at_{k}"], theirs.float().numpy(), err_msg=way)


@st.composite
def _classification(draw: st.DrawFn) -> tuple[Features, Features, Indices]:
    """Images, class weights and labels: classes may be alike, and may lack images."""
    dim, classes, images = draw(st.integers(1, 3)), draw(st.integers(5, 8)), draw(st.integers(1, 12))
    features = [
        draw(hnp.arrays(np.float32, (rows, dim), elements=_SMALL.map(np.float32))) for rows in (images, classes)
    ]
    labels = draw(hnp.arrays(np.int64, images, elements=st.integers(0, classes - 1)))
    return features[0], features[1], labels


@pytest.mark.filterwarnings("ignore::UserWarning")  # scikit-learn's, of classes without images
@settings(deadline=None, max_examples=100)
@given(_classification())
def test_accuracy_and_recall_per_class_with_ties(case: tuple[Features, Features, Indices]) -> None:
    images, weights, labels = case
    logits = _ranked_as_ours(images, weights)
    theirs = zeroshot_classification.accuracy(logits, torch.from_numpy(labels), topk=(1, 5))
    ours = [top_accuracy(images, weights, labels, depth) for depth in (1, 5)]
    assert [one.mean() for one in ours] == pytest.approx(theirs, abs=CLOSE)
    answers = predicted(images, weights)
    np.testing.assert_array_equal(answers, logits.argmax(dim=1).numpy())
    expected = zeroshot_classification.balanced_accuracy_score(labels, answers)
    assert mean_interval(ours[0], strata=labels).value == pytest.approx(expected, abs=CLOSE)


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
