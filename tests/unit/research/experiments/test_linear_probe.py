"""Linear probes on images whose colours are their features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from components.core.system.errors import InputError
from components.evaluation.scoring.published_context import PublishedContext
from research.experiments import linear_probe
from research.experiments.linear_probe import (
    best_exponent,
    few_of_each,
    released_answers,
    score,
    score_halved,
    score_pc_clip,
    score_released,
)
from research.image_sets.image_set import image_sets
from tests.support.image_shards import COLOURS, write_shards
from tests.support.published import ScoredBenchmark
from tests.support.toy_context import toy_context

RED, GREEN, BLUE = COLOURS.values()
TRAIN = [(RED, 2), (GREEN, 0), (BLUE, 1)] * 5
TEST = [(RED, 2), (GREEN, 0), (BLUE, 0)]
ANSWERS = [np.array([2, 0, 1]), np.array([2, 1, 1])]
NAME = "linear_probe_cifar10"
FACTS = image_sets()["cifar10"].model_copy(update={"classes": 3, "test": (3,), "train": (15,)})


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PublishedContext:
    """Both splits; the probes of PC-CLIP take two images of a class instead of a hundred."""
    write_shards(tmp_path, TRAIN, "train")
    write_shards(tmp_path, TEST)
    monkeypatch.setattr(linear_probe, "_PC_CLIP_IMAGES", 2)
    return toy_context(tmp_path, {})


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The pictures of each request for features."""
    requests: list[list[str]] = []
    features = PublishedContext.images

    def images(context: PublishedContext, pictures: Any) -> Any:
        requests.append([picture.name for picture in pictures])
        return features(context, pictures)

    monkeypatch.setattr(PublishedContext, "images", images)
    return requests


def test_probes_learn_from_train_pc_clips_from_equal_classes(context: PublishedContext, shown: list[list[str]]) -> None:
    found = ScoredBenchmark(f"{NAME}_pc_clip", score_pc_clip(context, FACTS), context, "linear_probe_cifar100_pc_clip")
    assert [len(names) for names in shown] == [6, 3]
    assert found.values["top1"] == [1, 1, 0]
    found = ScoredBenchmark(NAME, score(context, FACTS), context)
    assert found.values["top1"] == [1, 1, 0]
    assert found.strata["mean_per_class_recall"] == [2, 0, 0]


def test_the_released_probe_learns_from_any_class(context: PublishedContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two images for each class are six of the fifteen that torch's permutation has first."""
    given: list[Any] = []
    monkeypatch.setattr(linear_probe, "released_answers", lambda *arguments: given.extend(arguments) or ANSWERS)
    published = "linear_probe_cifar100_pc_clip_released"
    found = ScoredBenchmark(f"{NAME}_pc_clip_released", score_released(context, FACTS), context, published)
    train, labels, test, *others = given
    drawn = torch.randperm(15, generator=torch.Generator().manual_seed(0))[:6].tolist()
    assert labels.tolist() == [TRAIN[row][1] for row in drawn]
    assert train.tolist() == [list(TRAIN[row][0]) for row in drawn]
    assert (test.tolist(), others) == ([list(RED), list(GREEN), list(BLUE)], [3, 0])
    assert found.values["top1"] == [1, 0.5, 0]
    # The two trainings have 2/3 and 1/3 right; their deviation is 1/6.
    assert found.scalars["standard_error"] == pytest.approx(1 / 6 / np.sqrt(2))


def test_a_set_without_training_images_is_halved(tmp_path: Path, shown: list[list[str]]) -> None:
    write_shards(tmp_path, TRAIN)
    facts = FACTS.model_copy(update={"name": "imagenet_a", "test": (15,)})
    context = toy_context(tmp_path, {})
    found = ScoredBenchmark("linear_probe_imagenet_a_pc_clip", score_halved(context, facts), context)
    assert [len(names) for names in shown] == [6, 9]
    assert not set(shown[0]) & set(shown[1])
    assert found.values["top1"] == [1] * 9


def test_few_of_each_class_and_all_of_small_ones() -> None:
    labels = np.array([2, 0, 2, 2, 1, 2])
    rows = few_of_each(labels, 2, seed=0)
    assert sorted(labels[rows].tolist()) == [0, 1, 2, 2]
    assert any(few_of_each(labels, 2, seed).tolist() != rows.tolist() for seed in range(1, 9)), "drawn, not the first"
    assert few_of_each(labels, 100, seed=0).tolist() == [0, 1, 2, 3, 4, 5]
    assert sorted(labels[few_of_each(labels, 100, 0, share=0.5)].tolist()) == [2, 2]


def test_a_missing_split_or_one_class_is_refused(tmp_path: Path) -> None:
    write_shards(tmp_path, TEST)
    with pytest.raises(InputError, match=r"has no train images of CIFAR-10: put there"):
        score(toy_context(tmp_path, {}), FACTS)
    write_shards(tmp_path, [(RED, 1)] * 15, "train")
    with pytest.raises(InputError, match=r"all training images are of one class"):
        score(toy_context(tmp_path, {}), FACTS)


@given(st.integers(-48, 48))
def test_the_search_finds_the_best_of_a_smooth_curve_to_an_eighth_of_a_decade(best: int) -> None:
    assert best_exponent(lambda exponent: -abs(exponent - best / 8)) == best / 8
    assert best_exponent(lambda exponent: 0.0) == -6, "of equal strengths the strongest regularisation"


def test_the_released_layer_is_adam_on_cross_entropy_for_ten_epochs_of_batches_of_32() -> None:
    """Five trainings again by Adam's equations in NumPy, from torch's weights and orders of the same seed."""
    generator = np.random.default_rng(0)
    train, test = (generator.normal(size=(rows, 2)).astype(np.float32) * 3 for rows in (40, 400))
    labels = (train[:, 0] + 0.5 * generator.normal(size=40) > 0).astype(np.int64) + (train[:, 1] > 2)
    found = released_answers(train, labels, test, 3, seed=7)
    torch.manual_seed(7)
    for answers in found:
        head = torch.nn.Linear(2, 3)
        weights = np.concatenate([head.weight.detach().numpy().T, head.bias.detach().numpy()[None]]).astype(np.float64)
        first, second, step = np.zeros_like(weights), np.zeros_like(weights), 0
        for _ in range(10):
            order = torch.randperm(40).numpy()
            for rows in (order[:32], order[32:]):
                inputs = np.c_[train[rows], np.ones(len(rows))]
                shares = np.exp(inputs @ weights)
                shares /= shares.sum(axis=1, keepdims=True)
                gradient = inputs.T @ (shares - np.eye(3)[labels[rows]]) / len(rows)
                step += 1
                first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
                weights -= 1e-3 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        expected = (np.c_[test, np.ones(400)] @ weights).argmax(axis=1)
        assert (answers == expected).mean() > 0.995
    assert len(found) == 5
    assert any((answers != found[0]).any() for answers in found)
