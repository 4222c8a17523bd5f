"""Linear probes on images whose colours are their features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from components.benchmarks.published import find_published, linear_probe
from components.benchmarks.published.linear_probe import (
    score,
    score_halved,
    score_pc_clip,
    score_released,
)
from components.benchmarks.scoring.encoding.published_context import PublishedContext
from components.benchmarks.scoring.protocols.linear_probe import few_of_each
from components.core.system.errors import InputError
from components.test_sets.image_sets.image_set import image_sets
from tests.support.image_shards import COLOURS, write_shards
from tests.support.toy_context import toy_context

RED, GREEN, BLUE = COLOURS.values()
TRAIN = [(RED, 2), (GREEN, 0), (BLUE, 1)] * 5
TEST = [(RED, 2), (GREEN, 0), (BLUE, 0)]
ANSWERS = [np.array([2, 0, 1]), np.array([2, 1, 1])]
_images = PublishedContext.images
FACTS = image_sets()["cifar10"].model_copy(update={"classes": 3, "test": (3,), "train": (15,)})


def test_the_probe_learns_from_the_training_split_alone(tmp_path: Path) -> None:
    write_shards(tmp_path, TRAIN, "train")
    write_shards(tmp_path, TEST)
    found = score(toy_context(tmp_path, {}), FACTS)
    assert found.values["linear_probe_cifar10/top1"].tolist() == [1, 1, 0]
    assert found.strata["linear_probe_cifar10/mean_per_class_recall"].tolist() == [2, 0, 0]
    for name in found.values:
        assert find_published("linear_probe_cifar10").metric(name)


def test_pc_clips_probe_has_a_hundred_images_of_each_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shards(tmp_path, TRAIN, "train")
    write_shards(tmp_path, TEST)
    context = toy_context(tmp_path, {})
    monkeypatch.setattr(linear_probe, "_PC_CLIP_IMAGES", 2)
    shown = []
    monkeypatch.setattr(
        PublishedContext, "images", lambda context, pictures: shown.append(len(pictures)) or _images(context, pictures)
    )
    found = score_pc_clip(context, FACTS)
    assert shown == [6, 3]
    assert found.values["linear_probe_cifar10_pc_clip/top1"].tolist() == [1, 1, 0]
    for name in found.values:
        assert find_published(name.split("/")[0].replace("cifar10", "cifar100")).metric(name)


def test_the_released_probe_learns_from_raw_features_of_images_of_any_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two images for each class are six of the fifteen that torch's permutation has first."""
    write_shards(tmp_path, TRAIN, "train")
    write_shards(tmp_path, TEST)
    monkeypatch.setattr(linear_probe, "_PC_CLIP_IMAGES", 2)
    given: list[Any] = []
    monkeypatch.setattr(linear_probe, "released_answers", lambda *told: given.extend(told) or ANSWERS)
    found = score_released(toy_context(tmp_path, {}), FACTS)
    train, labels, test, *others = given
    drawn = torch.randperm(15, generator=torch.Generator().manual_seed(0))[:6].tolist()
    assert labels.tolist() == [TRAIN[row][1] for row in drawn]
    assert train.tolist() == [list(TRAIN[row][0]) for row in drawn]
    assert (test.tolist(), others) == ([list(RED), list(GREEN), list(BLUE)], [3, 0])
    name = "linear_probe_cifar10_pc_clip_released"
    assert found.values[f"{name}/top1"].tolist() == [1, 0.5, 0]
    # The two trainings have 2/3 and 1/3 right; their deviation is 1/6.
    assert found.scalars[f"{name}/standard_error"] == pytest.approx(1 / 6 / np.sqrt(2))
    for metric in (*found.values, *found.scalars):
        assert find_published("linear_probe_cifar100_pc_clip_released").metric(metric)


def test_a_set_without_training_images_is_halved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[list[str]] = []
    monkeypatch.setattr(
        PublishedContext,
        "images",
        lambda context, pictures: shown.append([one.name for one in pictures]) or _images(context, pictures),
    )
    write_shards(tmp_path, TRAIN)
    facts = FACTS.model_copy(update={"name": "imagenet_a", "test": (15,)})
    found = score_halved(toy_context(tmp_path, {}), facts)
    assert [len(names) for names in shown] == [6, 9]
    assert not set(shown[0]) & set(shown[1])
    assert found.values["linear_probe_imagenet_a_pc_clip/top1"].tolist() == [1] * 9
    for name in found.values:
        assert find_published("linear_probe_imagenet_a_pc_clip").metric(name)


def test_few_of_each_class_and_all_of_small_ones() -> None:
    labels = np.array([2, 0, 2, 2, 1, 2])
    rows = few_of_each(labels, 2, seed=0)
    assert sorted(labels[rows].tolist()) == [0, 1, 2, 2]
    assert rows.tolist() == sorted(set(rows.tolist()))
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
