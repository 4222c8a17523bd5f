"""Our retrieval and zero-shot metrics against those of clip-benchmark, on random and on adversarial inputs.

Ties: ours go to the earlier gallery row or class. clip-benchmark's fall as `torch.topk` leaves them, which promises
no order. Where similarities tie, its functions are therefore given scores that rank as ours do: whole numbers, spread
apart, less the row's place.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from clip_benchmark.metrics import zeroshot_classification, zeroshot_retrieval
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from components.core.compute.metrics import Features, Indices
from components.evaluation.scoring.intervals import mean_interval
from components.evaluation.scoring.protocols.retrieval import caption_recalls
from components.evaluation.scoring.protocols.zero_shot import top_accuracy
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
