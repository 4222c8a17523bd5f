"""Our retrieval and zero-shot metrics against those of clip-benchmark, on random and on adversarial inputs.

Ties: ours go to the earlier gallery row or class. clip-benchmark's fall as `torch.topk` leaves them, which promises
no order. Where similarities tie, its functions are therefore given scores that rank as ours do: whole numbers, spread
apart, less the row's place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from clip_benchmark.metrics import zeroshot_classification, zeroshot_retrieval
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from components.benchmarks.scoring.bootstrap import interval
from components.benchmarks.scoring.protocols.retrieval import caption_recalls
from components.benchmarks.scoring.protocols.zero_shot import predicted, prompt_ensemble, top_accuracy, unit
from components.core.compute.metrics import Features, Indices

CLOSE = 1e-6
_SMALL = st.integers(-2, 2).map(float)
"""Entries whose products are exact, so that equal similarities are equal to the last bit."""


@pytest.fixture(scope="module", autouse=True)
def _one_element_arrays_are_numbers() -> Iterator[None]:
    """clip-benchmark 1.6.2 calls `float` on arrays of one element, which numpy 2.4 and later refuse."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zeroshot_classification, "float", lambda value: float(np.asarray(value).item()), raising=False)
        yield


@dataclass(frozen=True)
class Lookup:
    """A model whose images and texts are features already, and its tokenizer, which numbers the texts."""

    texts: dict[str, Features]

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        """Row numbers `[texts]`."""
        known = list(self.texts)
        return torch.tensor([known.index(text) for text in texts])

    def encode_text(self, rows: Tensor) -> Tensor:
        """Features `[texts, dim]`."""
        return torch.from_numpy(np.stack(list(self.texts.values())))[rows]

    def encode_image(self, images: Tensor) -> Tensor:
        """Features `[images, dim]`."""
        return images


@dataclass(frozen=True)
class Batches:
    """What clip-benchmark takes from a data loader."""

    batches: list[tuple[Tensor, Tensor]]
    dataset: SimpleNamespace

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self.batches)


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


@pytest.mark.parametrize("seed", range(5))
def test_recall_from_features_to_figures(seed: int) -> None:
    generator = np.random.default_rng(seed)
    counts = generator.integers(1, 8, size=40)
    owners = np.repeat(np.arange(40), counts)
    images = generator.normal(size=(40, 6)).astype(np.float32)
    captions = (images[owners] + generator.normal(size=(len(owners), 6))).astype(np.float32)
    model = Lookup({f"caption {row}": feature for row, feature in enumerate(captions)})
    ends = np.cumsum(counts)
    texts = [[f"caption {row}" for row in range(end - count, end)] for end, count in zip(ends, counts, strict=True)]
    loader = [(torch.from_numpy(images[rows]), [texts[row] for row in rows]) for rows in np.split(np.arange(40), 4)]
    theirs = zeroshot_retrieval.evaluate(model, loader, model.tokenize, "cpu", amp=False, recall_k_list=[1, 5, 10])
    ours = caption_recalls(unit(images), unit(captions), owners, ks=(1, 5, 10))
    for k in (1, 5, 10):
        # Theirs are named after what is retrieved, ours after the way.
        expected = (theirs[f"image_retrieval_recall@{k}"], theirs[f"text_retrieval_recall@{k}"])
        found = (ours[f"text_to_image/recall_at_{k}"].mean(), ours[f"image_to_text/recall_at_{k}"].mean())
        assert found == pytest.approx(expected, abs=CLOSE)


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
    assert interval(ours[0], 1, seed=0, strata=labels).value == pytest.approx(expected, abs=CLOSE)


@pytest.mark.parametrize("seed", range(5))
def test_zero_shot_from_features_to_figures(seed: int) -> None:
    generator = np.random.default_rng(seed)
    names, templates = [f"class{number}" for number in range(9)], ["a {c}", "the {c}", "{c}"]
    centres = generator.normal(size=(9, 5))
    # Norms that differ: each prompt must weigh the same in the ensemble.
    prompts = (centres + generator.normal(size=(3, 9, 5))) * generator.uniform(0.1, 9, size=(3, 9, 1))
    prompts = prompts.astype(np.float32)
    labels = generator.choice(9, size=200, p=np.arange(1, 10) / 45)
    images = (centres[labels] + generator.normal(size=(200, 5))).astype(np.float32)
    model = Lookup(
        {
            template.format(c=name): prompts[row, column]
            for row, template in enumerate(templates)
            for column, name in enumerate(names)
        }
    )
    loader = torch.utils.data.DataLoader(list(zip(images, labels, strict=True)), batch_size=64)
    batches = Batches(list(loader), SimpleNamespace(classes=names))
    theirs = zeroshot_classification.evaluate(model, batches, model.tokenize, names, templates, "cpu", amp=False)
    weights = prompt_ensemble(prompts)
    right = top_accuracy(unit(images), weights, labels)
    ours = {
        "acc1": right.mean(),
        "acc5": top_accuracy(unit(images), weights, labels, 5).mean(),
        "mean_per_class_recall": interval(right, 1, seed=0, strata=labels).value,
    }
    assert ours == pytest.approx(theirs, abs=CLOSE)
    assert ours["acc1"] != pytest.approx(ours["mean_per_class_recall"], abs=0.001)
