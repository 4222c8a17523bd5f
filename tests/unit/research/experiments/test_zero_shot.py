"""Zero-shot classification, ours and by released code, on images whose colours are their features; confusions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision.datasets import Flowers102

from components.captions.prompting.readers import Ask, anything, read_class_pairs, read_classes
from components.core.system.errors import InputError
from components.core.tables.records import CLASS_DESCRIPTIONS
from components.evaluation.scoring.protocols.zero_shot import top_accuracy
from components.evaluation.scoring.published import write_lists
from research.experiments.parts.classes import (
    accuracy_among,
    confidence_margins,
    confused_cells,
    confusion_matrix,
    held_out,
    most_confused,
)
from research.experiments.zero_shot import score
from research.experiments.zero_shot_released import score_pc_clip, score_semclip
from research.image_sets.image_set import ImageSet, ImageSetFacts, image_sets
from research.image_sets.reading import PC_CLIP, SEMCLIP, pc_clip_images, released_names
from tests.support.image_shards import COLOURS, write_differences, write_shards
from tests.support.published import ScoredBenchmark
from tests.support.toy_context import colour_image, toy_context

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


def run(folder: Path, table: dict[str, Any] = TABLE, facts: ImageSetFacts = FACTS, **options: Any) -> ScoredBenchmark:
    """The scores of three classes, by default of `SAMPLES`."""
    if not (folder / "test").exists():
        write_shards(folder, SAMPLES)
    context = toy_context(folder, table, allow_partial=True, options=options)
    return ScoredBenchmark("zero_shot_cifar10", score(context, facts), context)


def test_groups_by_hand_with_the_published_templates_which_are_not_run(tmp_path: Path) -> None:
    found = run(tmp_path)
    plain = [1, 0, 1, 1]
    assert found.values == {
        **{f"{group}/{name}": plain for group in ("ensemble", "pc_clip") for name in ("top1", "mean_per_class_recall")},
        "semclip/top1": plain,
        "semclip/top1_negated": [0, 1, 0, 1],
        "semclip/delta": [1, -1, 1, 0],
    }
    assert found.strata["ensemble/mean_per_class_recall"] == [0, 1, 1, 2]
    swapped = {**TABLE, "the red": (0, 3, 0), "the green": (3, 0, 0), "a photo of a red.": (0, 1, 0)}
    found = run(tmp_path, swapped).values
    assert (found["ensemble/top1"][0], found["pc_clip/top1"][0]) == (0, 1)
    (tmp_path / "zeroshot_classification_templates.txt").write_text("{c.__class__} {c}\n")
    assert "{c.__class__} red" in run(tmp_path).asked


def test_top5_only_where_there_are_more_classes(tmp_path: Path) -> None:
    names = [f"colour {number}" for number in range(10)]
    write_shards(tmp_path, [(RED, 9)], names=names)
    assert len(run(tmp_path, {}, FACTS.model_copy(update={"classes": 10})).values["ensemble/top5"]) == 1


def write_descriptions(path: Path, *rows: tuple[str, str, int]) -> None:
    names, texts, samples = (list(column) for column in zip(*rows, strict=True))
    CLASS_DESCRIPTIONS.write(path, {"id": names, "sample": samples, "class_name": names, "description": texts})


def test_descriptions_stand_in_place_of_the_prompt_and_must_cover_all_classes(tmp_path: Path) -> None:
    table, lines = tmp_path / "described.parquet", tmp_path / "lines.txt"
    write_descriptions(table, ("Red", "warm", 0), ("Red", "hot", 1), ("green", "grassy", 0), ("blue", "cold", 0))
    lines.write_text("warm\ngrassy\ncold\n")
    features = {**TABLE, "warm": (1, 0, 0), "hot": (0.5, 0.5, 0), "grassy": (0, 1, 0), "cold": (0, 0, 1)}
    for path in (table, lines):
        assert run(tmp_path, features, class_descriptions=path).values["extended/top1"] == [1, 0, 1, 1]
    lines.write_text("warm\ngrassy\n")
    with pytest.raises(InputError, match=r"lines.txt has 2 lines for 3 classes"):
        run(tmp_path, class_descriptions=lines)
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
    found, again = (run(tmp_path, {**TABLE, "redder": (-1, 0, 0)}) for _ in range(2))
    assert sum(found.values["pc_clip/top1"]) == 10
    comparative = [found.values[f"comparative_{kind}/top1"] for kind in ("plain", "alpha_0.5", "alpha_0.9")]
    assert [(len(values), sum(values)) for values in comparative] == [(12, 8), (12, 12), (12, 8)]
    assert found.scalars["comparative_plain/top1_confused"] == 0.5
    assert found.scalars["comparative_alpha_0.5/top1_confused"] == 1
    assert again.values == found.values


def test_comparative_protocols_need_their_pairs(tmp_path: Path) -> None:
    write_shards(tmp_path, CONFUSED)
    where = "any table: give --benchmark-option class_{}=<table>"
    for pair in (None, ("red", "blue"), ("dog", "cat")):
        if pair:
            write_differences(tmp_path / "class_differences.parquet", [(*pair, "redder")])
        found = run(tmp_path)
        assert not any("comparative" in name for name in found.values)
        assert found.context.lists["class_pairs"] == [("red", "green"), ("green", "red")]
        table = f"{tmp_path}/class_differences.parquet" if pair else where.format("differences")
        assert found.left_out == [
            f"extended: no description of these classes in {where.format('descriptions')}",
            f"comparative: no text on two classes that are confused in {table}",
        ]


FLOWERS = image_sets()["flowers102"]
NAME = "zero_shot_cifar10_pc_clip_released"


def test_semclips_code_scores_the_training_split_in_lower_case(tmp_path: Path) -> None:
    write_shards(tmp_path, SAMPLES, "train")
    table = {f"this is a photo of a {name}": axis for name, axis in PURE.items()}
    table |= {f"this is not a photo of a {name}": (1, 0, 0) for name in PURE}
    context, name = toy_context(tmp_path, table), "zero_shot_cifar10_semclip_released"
    wanted = {"top1": [1, 0, 1, 1], "top1_negated": [1, 0, 0, 0], "delta": [0, 0, 1, 1]}
    assert ScoredBenchmark(name, score_semclip(context, FACTS), context).values == wanted


def test_missing_exact_class_names_are_required(tmp_path: Path) -> None:
    write_shards(tmp_path, [(RED, 0), (RED, 1)], "train", names=["apple pie", "waffles"])
    facts = image_sets()["food101"].model_copy(update={"classes": 2, "train": (2,)})
    with pytest.raises(InputError, match=r"does not have the exact class names of Food-101"):
        score_semclip(toy_context(tmp_path, {}), facts)


def test_flowers_are_called_as_the_released_code_calls_them(tmp_path: Path) -> None:
    """Four names of PC-CLIP's own list, and torchvision's, differ from CLIP's."""
    found = ImageSet((), torch.arange(0).numpy(), FLOWERS.class_names)  # type: ignore[arg-type]
    assert released_names(tmp_path, FLOWERS, found, SEMCLIP) == Flowers102.classes
    own = released_names(tmp_path, FLOWERS, found, PC_CLIP)
    assert [own[number] for number in (11, 15, 59, 92)] == [
        "colts foot", "globe-flower", "pink-yellow dahlia?", "ball moss",
    ]  # fmt: skip
    assert sum(one != other for one, other in zip(own, FLOWERS.class_names or (), strict=True)) == 4


def test_a_tenth_of_eurosat_is_drawn_as_the_authors_draw_it(tmp_path: Path) -> None:
    facts = image_sets()["eurosat"].model_copy(update={"whole": 20})
    names = facts.class_folders or ()
    files = [f"{name}_{image}.png" for name in names for image in range(2)]
    for number, file in enumerate(files):
        colour_image(tmp_path / "2750" / names[number // 2] / file, (12 * number, 0, 100 * (number % 2)))
    context = toy_context(tmp_path, {f"This is a photo of a {name}": (1, 0, 0) for name in names})
    torch.manual_seed(0)
    drawn = torch.randperm(20)[18:].tolist()
    assert [picture.name for picture in pc_clip_images(context, facts).pictures] == [files[row] for row in drawn]
    found = score_pc_clip(context, facts)
    # All classes are alike, so the first is always answered.
    expected = [float(row < 2) for row in drawn]
    assert found.values["zero_shot_eurosat_pc_clip_released/top1"].tolist() == expected


def run_released(folder: Path, table: dict[str, Any], **options: Any) -> ScoredBenchmark:
    context = toy_context(folder, table, allow_partial=True, options=options)
    return ScoredBenchmark(NAME, score_pc_clip(context, FACTS), context, "zero_shot_cifar100_pc_clip_released")


def test_descriptions_follow_the_prompt(tmp_path: Path) -> None:
    write_shards(tmp_path, SAMPLES)
    (tmp_path / "lines.txt").write_text("warm\ngrassy\ninclude <iostream>\n")
    table = {f"This is a photo of a {name}": axis for name, axis in PURE.items()}
    table |= {"This is a photo of a red. warm": (0, 1, 0), "This is a photo of a green. grassy": (1, 0, 0)}
    table |= {"This is a photo of a blue. blue": (0, 0, 1)}
    found = run_released(tmp_path, table, class_descriptions=tmp_path / "lines.txt").values
    assert (found["top1"], found["extended/top1"]) == ([1, 0, 1, 1], [0, 1, 0, 1])


ONE_CELL = [(RED, 0), (ORANGE, 1), (BLUE, 2)]
"""The orange one, of class green, is taken for a red one, see below: the one cell is (green, red)."""
TILTED = {
    "This is a photo of a red": (1, 0, 0),
    "This is a photo of a green": (0.6, 0.8, 0),
    "This is a photo of a blue": (0, 0, 1),
    "greener": (0, 1, 0),
    "redder": (0.6, 0.8, 0),
}


def test_a_cell_has_one_text_which_updates_the_class_answered(tmp_path: Path) -> None:
    """Orange is (0.905, 0.426, 0): red 0.905, green 0.884.

    At 0.5 red becomes 0.5 (1, 0, 0) + 0.5 ((0.6, 0.8, 0) - (0, 1, 0)), or (0.992, -0.124, 0) of unit length: orange has
    0.845 with it and goes to green. At 0.9 it becomes (1.000, -0.021, 0), with which orange has 0.896.
    """
    write_shards(tmp_path, ONE_CELL)
    path = tmp_path / "class_differences.parquet"
    write_differences(path, [("red", "green", "redder")])
    assert not any("comparative" in name for name in run_released(tmp_path, TILTED).values), (
        "a text of the other direction"
    )
    write_differences(path, [("green", "red", "greener")])
    scores = run_released(tmp_path, TILTED)
    found = scores.values
    assert found["comparative_plain/top1"] == found["comparative_alpha_0.9/top1"] == [1, 0, 1]
    assert found["comparative_alpha_0.5/top1"] == [1, 1, 1]
    assert scores.scalars["comparative_plain/top1_confused"] == 0.5
    assert scores.scalars["comparative_alpha_0.5/top1_confused"] == 1
    assert not any("both" in name for name in found)


def test_confused_pairs_become_prompts_and_their_answers_are_scored(tmp_path: Path) -> None:
    """From the cells of an encoder's confusion matrix to the questions, their answers and the groups of table 2."""
    write_shards(tmp_path, ONE_CELL)
    asking = run_released(tmp_path, TILTED)
    assert not any("comparative" in name for name in asking.values)
    lacks = (
        "no text on how 'green' differs from 'red' ({} such) in any table: give --benchmark-option "
        "class_differences=<table>"
    )
    assert asking.left_out[-2:] == [f"comparative: {lacks.format(1)}", f"comparative_both: {lacks.format(2)}"]
    write_lists(asking.context, NAME, tmp_path / "results")
    sources = list(read_class_pairs(tmp_path / "results" / "class_pairs", anything, Ask(9)))
    texts = {("green", "red"): "greener", ("red", "green"): "redder"}
    pairs = [(source.inputs["class_name"], source.inputs["other_class_name"]) for source in sources]
    write_differences(tmp_path / "class_differences.parquet", [(*pair, texts[pair]) for pair in pairs])
    found = run_released(tmp_path, TILTED)
    assert found.values["comparative_alpha_0.5/top1"] == [1, 1, 1]
    # With both directions green becomes 0.5 (0.6, 0.8, 0) + 0.5 ((1, 0, 0) - (0.6, 0.8, 0)), which is red's axis.
    assert found.values["comparative_both_alpha_0.5/top1"] == [0, 1, 1]
    classes = read_classes(tmp_path / "results" / "class_names", anything, Ask(9))
    assert [source.inputs["class_name"] for source in classes] == ["blue", "green", "red"]


def reals(rows: Any) -> Any:
    return np.array(rows, dtype=np.float32)


def test_confusions_count_in_both_directions_and_released_ones_are_the_largest_cells() -> None:
    labels, answers = np.array([0, 0, 1, 2, 2, 2]), np.array([1, 0, 0, 1, 1, 2])
    confusion = confusion_matrix(labels, answers, 3)
    assert confusion.tolist() == [[1, 1, 0], [1, 0, 0], [0, 2, 1]]
    assert most_confused(confusion, 3) == [(0, 1), (1, 2)]
    assert most_confused(confusion, 1) == [(0, 1)]
    assert most_confused(confusion, 3, {(0, 2), (1, 2)}) == [(1, 2)]
    # The loop of github.com/dsam99/pc_clip, run.py: the largest cell, set to zero, three times.
    confusion = np.array([[9, 1, 0], [3, 9, 2], [0, 3, 9]])
    assert confused_cells(confusion, 9) == [(1, 0), (2, 1), (1, 2), (0, 1)], "of equal cells the one that comes first"
    assert confused_cells(np.diag([3, 2]), 3) == []
    confusion = np.random.default_rng(3).integers(0, 50, size=(12, 12))
    left, cells = torch.from_numpy(confusion.copy()).fill_diagonal_(0), []
    for _ in range(3):
        place = int(left.argmax())
        cells.append((place // 12, place % 12))
        left[cells[-1]] = 0
    assert confused_cells(confusion, 3) == cells


def test_among_confused_classes_no_other_is_answered_and_margins_are_of_a_softmax() -> None:
    weights = reals([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    images = reals([[0.6, 0, 0.8], [0.6, 0.8, 0], [0, 0.6, 0.8], [0, 0, 1]])
    labels = np.array([0, 0, 1, 2])
    # Over all classes the first three are wrong; without class 2 the first and the third are right.
    assert top_accuracy(images, weights, labels).tolist() == [0, 0, 0, 1]
    assert accuracy_among(images, weights, labels, {1, 0}) == pytest.approx(2 / 3)
    assert accuracy_among(images[3:], weights, labels[3:], {1, 0}) is None
    # Cosines 1, 0.8 and 0: e, e^0.8 and 1 of 5.9438, whose first two differ by 0.0829.
    weights = reals([[1, 0], [0.8, 0.6], [0, 1]])
    assert confidence_margins(reals([[1, 0], [0, 1]]), weights).tolist() == pytest.approx([0.08290, 0.16175], abs=1e-5)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(0, 5))
def test_the_same_share_of_every_class_is_held_out(classes: list[int], seed: int) -> None:
    labels = np.array(classes)
    aside = held_out(labels, 0.2, seed)
    assert (aside == held_out(labels, 0.2, seed)).all()
    for number in set(classes):
        assert aside[labels == number].sum() == round(0.2 * classes.count(number))
