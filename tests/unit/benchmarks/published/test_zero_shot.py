"""Zero-shot classification of images whose colours are their features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.benchmarks.published import find_published
from components.benchmarks.published.zero_shot import score
from components.benchmarks.scoring.benchmark import Scores
from components.core.system.errors import InputError
from components.core.tables.records import CLASS_DESCRIPTIONS
from components.test_sets.image_sets.image_set import image_sets
from tests.support.image_shards import COLOURS, write_differences, write_shards
from tests.support.toy_context import toy_context

RED, GREEN, BLUE = COLOURS.values()
SAMPLES = [(RED, 0), (RED, 1), (GREEN, 1), (BLUE, 2)]
"""The second is a red one of class green."""
PURE = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1)}
TABLE = {
    **{f"a photo of a {name}.": axis for name, axis in PURE.items()},
    **{f"the {name}": axis for name, axis in PURE.items()},
    **{f"This is a photo of a {name}": axis for name, axis in PURE.items()},
    "This is not a photo of a red": (0, 1, 0),
    "This is not a photo of a green": (1, 0, 0),
    "This is not a photo of a blue": (0, 0, 1),
}
FACTS = image_sets()["cifar10"].model_copy(update={"classes": 3, "test": (4,), "train": (4,)})


def run(folder: Path, table: dict[str, Any] | None = None, samples: Any = SAMPLES, **options: Any) -> Scores:
    if not (folder / "test").exists():
        write_shards(folder, samples)
    return score(toy_context(folder, table or TABLE, allow_partial=True, options=options), FACTS)


def test_groups_by_hand(tmp_path: Path) -> None:
    found = run(tmp_path)
    assert {name: values.tolist() for name, values in found.values.items()} == {
        "zero_shot_cifar10/ensemble/top1": [1, 0, 1, 1],
        "zero_shot_cifar10/ensemble/mean_per_class_recall": [1, 0, 1, 1],
        "zero_shot_cifar10/pc_clip/top1": [1, 0, 1, 1],
        "zero_shot_cifar10/pc_clip/mean_per_class_recall": [1, 0, 1, 1],
        "zero_shot_cifar10/semclip/top1": [1, 0, 1, 1],
        "zero_shot_cifar10/semclip/top1_negated": [0, 1, 0, 1],
        "zero_shot_cifar10/semclip/delta": [1, -1, 1, 0],
    }
    assert found.strata["zero_shot_cifar10/ensemble/mean_per_class_recall"].tolist() == [0, 1, 1, 2]


def test_the_ensemble_is_of_the_published_templates(tmp_path: Path) -> None:
    swapped = {**TABLE, "the red": (0, 3, 0), "the green": (3, 0, 0), "a photo of a red.": (0, 1, 0)}
    found = run(tmp_path, swapped)
    assert found.values["zero_shot_cifar10/ensemble/top1"].tolist()[0] == 0
    assert found.values["zero_shot_cifar10/pc_clip/top1"].tolist()[0] == 1


def test_top5_only_where_there_are_more_classes(tmp_path: Path) -> None:
    names = [f"colour {number}" for number in range(10)]
    write_shards(tmp_path, [(RED, 9)], names=names)
    facts = FACTS.model_copy(update={"classes": 10})
    found = score(toy_context(tmp_path, {}, allow_partial=True), facts)
    assert found.values["zero_shot_cifar10/ensemble/top5"].shape == (1,)


def test_descriptions_stand_in_place_of_the_prompt(tmp_path: Path) -> None:
    path = tmp_path / "described.parquet"
    texts = [("Red", "warm", 0), ("Red", "hot", 1), ("green", "grassy", 0), ("blue", "cold", 0)]
    CLASS_DESCRIPTIONS.write(
        path,
        {
            "id": [name for name, _, _ in texts], "sample": [sample for _, _, sample in texts],
            "class_name": [name for name, _, _ in texts], "description": [text for _, text, _ in texts],
        },
    )  # fmt: skip
    table = {**TABLE, "warm": (1, 0, 0), "hot": (0.5, 0.5, 0), "grassy": (0, 1, 0), "cold": (0, 0, 1)}
    found = run(tmp_path, table, class_descriptions=path).values
    assert found["zero_shot_cifar10/extended/top1"].tolist() == [1, 0, 1, 1]
    (tmp_path / "lines.txt").write_text("warm\ngrassy\ncold\n")
    found = run(tmp_path, table, class_descriptions=tmp_path / "lines.txt").values
    assert found["zero_shot_cifar10/extended/top1"].tolist() == [1, 0, 1, 1]
    (tmp_path / "lines.txt").write_text("warm\ngrassy\n")
    with pytest.raises(InputError, match=r"lines.txt has 2 lines for 3 classes"):
        run(tmp_path, table, class_descriptions=tmp_path / "lines.txt")


def test_a_table_of_other_classes_is_skipped_and_one_of_some_refused(tmp_path: Path) -> None:
    def write(*names: str) -> None:
        columns = {"id": names, "sample": [0] * len(names), "class_name": names, "description": names}
        path = tmp_path / "class_descriptions.parquet"
        CLASS_DESCRIPTIONS.write(path, {name: list(column) for name, column in columns.items()})

    write("dog")
    assert not any("extended" in name for name in run(tmp_path).values)
    write("red", "dog")
    with pytest.raises(InputError, match=r"has no description of 'green' \(2 such\)"):
        run(tmp_path)


ORANGE = (255, 120, 0)
CONFUSED = [(RED, 0)] * 5 + [(ORANGE, 1)] * 5 + [(BLUE, 2)] * 5
"""The prompts take every orange picture for a red one; class 1 is called green."""


def test_comparative_prompting_mends_a_confused_pair(tmp_path: Path) -> None:
    write_shards(tmp_path, CONFUSED)
    write_differences(tmp_path / "class_differences.parquet", [("red", "green", "redder")])
    # At 0.5: f'_green = 0.5 (0, 1, 0) + 0.5 ((1, 0, 0) - d), d = (-1, 0, 0): (1, 0.5, 0) normalised, nearer to orange.
    found = run(tmp_path, {**TABLE, "redder": (-1, 0, 0)})
    assert found.values["zero_shot_cifar10/pc_clip/top1"].mean() == pytest.approx(10 / 15)
    plain = found.values["zero_shot_cifar10/comparative_plain/top1"]
    assert (len(plain), plain.mean()) == (12, pytest.approx(8 / 12))
    assert found.values["zero_shot_cifar10/comparative_alpha_0.5/top1"].mean() == 1
    assert found.values["zero_shot_cifar10/comparative_alpha_0.9/top1"].mean() == pytest.approx(8 / 12)
    assert found.scalars["zero_shot_cifar10/comparative_plain/top1_confused"] == 0.5
    assert found.scalars["zero_shot_cifar10/comparative_alpha_0.5/top1_confused"] == 1
    again = run(tmp_path, {**TABLE, "redder": (-1, 0, 0)})
    assert (again.values["zero_shot_cifar10/comparative_plain/top1"] == plain).all()


def test_comparative_protocols_need_their_pairs(tmp_path: Path) -> None:
    write_shards(tmp_path, CONFUSED)
    for pair in (None, ("red", "blue"), ("dog", "cat")):
        if pair:
            write_differences(tmp_path / "class_differences.parquet", [(*pair, "redder")])
        context = toy_context(tmp_path, TABLE, allow_partial=True)
        assert not any("comparative" in name for name in score(context, FACTS).values)
        assert context.lists["class_pairs"] == [("red", "green"), ("green", "red")]
        where = (
            f"{tmp_path}/class_differences.parquet"
            if pair
            else "any table: give --benchmark-option class_differences=<table>"
        )
        assert context.left_out == [
            "extended: no description of these classes in any table: give --benchmark-option "
            "class_descriptions=<table>",
            f"comparative: no text on two classes that are confused in {where}",
        ]


def test_a_template_reaches_into_nothing(tmp_path: Path) -> None:
    write_shards(tmp_path, SAMPLES)
    (tmp_path / "zeroshot_classification_templates.txt").write_text("{c.__class__} {c}\n")
    context = toy_context(tmp_path, TABLE, allow_partial=True)
    score(context, FACTS)
    encoder: Any = context.under_test.encoder
    assert "{c.__class__} red" in encoder.asked


def test_all_reported_metrics_are_declared(tmp_path: Path) -> None:
    write_shards(tmp_path, CONFUSED)
    write_differences(tmp_path / "class_differences.parquet", [("red", "green", "redder")])
    found = run(tmp_path)
    for name in (*found.values, *found.scalars):
        assert find_published("zero_shot_cifar10").metric(name)
    assert all(np.isfinite(values).all() for values in found.values.values())
