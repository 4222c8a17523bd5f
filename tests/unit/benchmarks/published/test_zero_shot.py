"""Zero-shot classification of images whose colours are their features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
PROMPTS = ("a photo of a {}.", "the {}", "This is a photo of a {}")
TABLE = {
    **{prompt.format(name): axis for prompt in PROMPTS for name, axis in PURE.items()},
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
    plain = [1, 0, 1, 1]
    assert {name.removeprefix("zero_shot_cifar10/"): values.tolist() for name, values in found.values.items()} == {
        **{f"{group}/{name}": plain for group in ("ensemble", "pc_clip") for name in ("top1", "mean_per_class_recall")},
        "semclip/top1": plain,
        "semclip/top1_negated": [0, 1, 0, 1],
        "semclip/delta": [1, -1, 1, 0],
    }
    assert found.strata["zero_shot_cifar10/ensemble/mean_per_class_recall"].tolist() == [0, 1, 1, 2]


def test_templates_are_the_published_ones_and_are_not_run(tmp_path: Path) -> None:
    swapped = {**TABLE, "the red": (0, 3, 0), "the green": (3, 0, 0), "a photo of a red.": (0, 1, 0)}
    found = run(tmp_path, swapped)
    assert found.values["zero_shot_cifar10/ensemble/top1"].tolist()[0] == 0
    assert found.values["zero_shot_cifar10/pc_clip/top1"].tolist()[0] == 1
    (tmp_path / "zeroshot_classification_templates.txt").write_text("{c.__class__} {c}\n")
    context = toy_context(tmp_path, TABLE, allow_partial=True)
    score(context, FACTS)
    assert "{c.__class__} red" in context.under_test.encoder.asked  # type: ignore[attr-defined]


def test_top5_only_where_there_are_more_classes(tmp_path: Path) -> None:
    names = [f"colour {number}" for number in range(10)]
    write_shards(tmp_path, [(RED, 9)], names=names)
    facts = FACTS.model_copy(update={"classes": 10})
    found = score(toy_context(tmp_path, {}, allow_partial=True), facts)
    assert found.values["zero_shot_cifar10/ensemble/top5"].shape == (1,)


def write_descriptions(path: Path, *rows: tuple[str, str, int]) -> None:
    names, texts, samples = (list(column) for column in zip(*rows, strict=True))
    CLASS_DESCRIPTIONS.write(path, {"id": names, "sample": samples, "class_name": names, "description": texts})


def test_descriptions_stand_in_place_of_the_prompt(tmp_path: Path) -> None:
    table, lines = tmp_path / "described.parquet", tmp_path / "lines.txt"
    write_descriptions(table, ("Red", "warm", 0), ("Red", "hot", 1), ("green", "grassy", 0), ("blue", "cold", 0))
    lines.write_text("warm\ngrassy\ncold\n")
    features = {**TABLE, "warm": (1, 0, 0), "hot": (0.5, 0.5, 0), "grassy": (0, 1, 0), "cold": (0, 0, 1)}
    for path in (table, lines):
        found = run(tmp_path, features, class_descriptions=path).values
        assert found["zero_shot_cifar10/extended/top1"].tolist() == [1, 0, 1, 1]
    lines.write_text("warm\ngrassy\n")
    with pytest.raises(InputError, match=r"lines.txt has 2 lines for 3 classes"):
        run(tmp_path, class_descriptions=lines)


def test_a_table_of_other_classes_is_skipped_and_one_of_some_refused(tmp_path: Path) -> None:
    write_descriptions(tmp_path / "class_descriptions.parquet", ("dog", "a dog", 0))
    assert not any("extended" in name for name in run(tmp_path).values)
    write_descriptions(tmp_path / "class_descriptions.parquet", ("red", "a red", 0), ("dog", "a dog", 0))
    with pytest.raises(InputError, match=r"has no description of 'green' \(2 such\)"):
        run(tmp_path)


ORANGE = (255, 120, 0)
CONFUSED = [(RED, 0)] * 5 + [(ORANGE, 1)] * 5 + [(BLUE, 2)] * 5
"""The prompts take every orange picture for a red one; class 1 is called green."""


def test_comparative_prompting_mends_a_confused_pair(tmp_path: Path) -> None:
    write_shards(tmp_path, CONFUSED)
    write_differences(tmp_path / "class_differences.parquet", [("red", "green", "redder")])
    # At 0.5: f'_green = 0.5 (0, 1, 0) + 0.5 ((1, 0, 0) - d), d = (-1, 0, 0): (1, 0.5, 0) normalised, nearer to orange.
    scores, repeated = (run(tmp_path, {**TABLE, "redder": (-1, 0, 0)}) for _ in range(2))
    found = {name.removeprefix("zero_shot_cifar10/"): values for name, values in scores.values.items()}
    assert found["pc_clip/top1"].mean() == pytest.approx(10 / 15)
    assert len(found["comparative_plain/top1"]) == 12
    assert found["comparative_plain/top1"].mean() == pytest.approx(8 / 12)
    assert found["comparative_alpha_0.5/top1"].mean() == 1
    assert found["comparative_alpha_0.9/top1"].mean() == pytest.approx(8 / 12)
    assert scores.scalars["zero_shot_cifar10/comparative_plain/top1_confused"] == 0.5
    assert scores.scalars["zero_shot_cifar10/comparative_alpha_0.5/top1_confused"] == 1
    again = repeated.values["zero_shot_cifar10/comparative_plain/top1"]
    assert again.tolist() == found["comparative_plain/top1"].tolist()
    assert all(find_published("zero_shot_cifar10").metric(name) for name in (*scores.values, *scores.scalars))


def test_comparative_protocols_need_their_pairs(tmp_path: Path) -> None:
    write_shards(tmp_path, CONFUSED)
    where = "any table: give --benchmark-option class_{}=<table>"
    for pair in (None, ("red", "blue"), ("dog", "cat")):
        if pair:
            write_differences(tmp_path / "class_differences.parquet", [(*pair, "redder")])
        context = toy_context(tmp_path, TABLE, allow_partial=True)
        assert not any("comparative" in name for name in score(context, FACTS).values)
        assert context.lists["class_pairs"] == [("red", "green"), ("green", "red")]
        table = f"{tmp_path}/class_differences.parquet" if pair else where.format("differences")
        assert context.left_out == [
            f"extended: no description of these classes in {where.format('descriptions')}",
            f"comparative: no text on two classes that are confused in {table}",
        ]
