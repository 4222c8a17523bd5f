"""Geometry of features on tiny files in the published formats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.tables.records import DIFFERENCES
from components.evaluation.benchmarks.published import published_benchmarks
from tests.support.published import refused, scored
from tests.support.toy_context import toy_context
from tests.unit.data.test_sets.writing import write_files

HALF = 2**-0.5


def _row(class_a: str, class_b: str, difference: str, dataset: str = "cifar100") -> dict[str, str]:
    return {"dataset": dataset, "class_a": class_a, "class_b": class_b, "difference": difference}


def test_table_7_by_hand_with_both_prompts(tmp_path: Path) -> None:
    rows = [_row("crab", "lobster", "rounder"), _row("lobster", "crab", "longer"), _row("oak", "maple", "?", "sun397")]
    write_files(tmp_path, {"comparisons.json": rows})
    table = {
        "This is a photo of crab": (1, 0, 0), "This is a photo of lobster": (0, 1, 0),
        "A photo of a crab": (0, 3, 0), "A photo of a lobster": (4, 0, 0),
        "rounder": (1, 0, 0), "longer": (-1, 0, 0),
    }  # fmt: skip
    scores = scored("comparison_distance", tmp_path, table)
    found = scores.values
    assert found["cifar100/comparison"] == pytest.approx([1 - HALF, 1 - HALF])
    assert found["cifar100/reverse_comparison"] == pytest.approx([1 + HALF, 1 + HALF])
    # (0, 3, 0) less (4, 0, 0) is as long as 5, and its cosine with "rounder" is -4/5: classes keep their lengths.
    assert found["cifar100_released/comparison"] == pytest.approx([1.8, 1.8])
    assert found["cifar100/antisymmetry"] == [1]
    assert "sun397/antisymmetry" not in found
    assert scores.notes[:2] == [
        "comparisons.json: data sets: 2 found, 5 published",
        "comparisons.json: pairs of cifar100: 1 found, 3 published",
    ]
    write_files(tmp_path, {"comparisons.json": [_row("a", "b", "c", "../x")]})
    refused("comparison_distance", tmp_path, r"dataset '../x': write small letters", table, allow_partial=True)


def test_an_encoder_of_unit_features_alone_lacks_the_released_group(tmp_path: Path) -> None:
    class Sentences:
        def embed_texts(self, texts: Any, batch_size: int = 1, title: str | None = None) -> Any:
            return np.eye(3, dtype=np.float32)[[len(text) % 3 for text in texts]]

    write_files(tmp_path, {"comparisons.json": [_row("crab", "lobster", "rounder")]})
    context = toy_context(tmp_path, {}, allow_partial=True)
    context.under_test = replace(context.under_test, encoder=Sentences())
    found = published_benchmarks()["comparison_distance"].score(context).values
    assert not any("released" in name for name in found)
    assert context.left_out == ["..._released: the encoder only returns unit features"]


def test_caption_differences_from_the_table(tmp_path: Path) -> None:
    columns: dict[str, list[object]] = {
        "id": ["1", "2"], "other_id": ["2", "1"], "sample": [0, 0], "caption": ["red", "green"],
        "other_caption": ["green", "red"], "difference": ["redder", "greener"], "similarity": [0.5, 0.5],
    }  # fmt: skip
    DIFFERENCES.write(tmp_path / "differences.parquet", columns)
    table = {"red": (1, 0, 0), "green": (0, 1, 0), "redder": (1, 0, 0), "greener": (0, 1, 0)}
    found = scored("caption_differences", tmp_path, table, allow_partial=False).values
    assert found["comparison"] == pytest.approx([1 - HALF, 1 - HALF])
    assert found["antisymmetry"] == [0]
    DIFFERENCES.write(tmp_path / "differences.parquet", {name: [] for name in columns})
    refused("caption_differences", tmp_path, r"differences.parquet has no rows", table)


def test_gap_of_cocos_images_and_first_captions(tmp_path: Path) -> None:
    images = [{"id": 9, "file_name": "000000000009.png"}, {"id": 4, "file_name": "000000000004.png"}]
    captions = [(7, 9, "later"), (2, 9, "red "), (3, 4, "blue")]
    annotations = [{"id": one, "image_id": image, "caption": caption} for one, image, caption in captions]
    content = {"info": {}, "images": images, "annotations": annotations}
    write_files(tmp_path, {
        "annotations/captions_val2017.json": content,
        "val2017/000000000009.png": (255, 0, 0), "val2017/000000000004.png": (0, 255, 0),
    })  # fmt: skip
    found = scored("modality_gap", tmp_path, {"red": (1, 0, 0), "blue": (0, 0, 1)})
    # Images in the order of their ids: green, red; captions: blue, red.
    assert found.values["alignment"] == pytest.approx([2, 0])
    assert found.scalars["gap"] == pytest.approx(HALF)
    assert found.scalars["images/uniformity"] == pytest.approx(-4)
    assert "captions_val2017.json: images: 2 found, 5,000 published" in found.notes
