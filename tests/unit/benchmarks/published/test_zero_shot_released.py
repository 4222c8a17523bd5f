"""Zero-shot classification by the released code of PC-CLIP and SemCLIP, on images whose colours are their features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision.datasets import Flowers102

from components.benchmarks.published import find_published
from components.benchmarks.published.zero_shot_released import score_pc_clip, score_semclip
from components.benchmarks.scoring.benchmark import Scores
from components.captions.prompting.inputs.benchmark_readers import read_class_pairs, read_classes
from components.captions.prompting.inputs.readers import Ask, anything
from components.core.system.errors import InputError
from components.evaluation.published import write_lists
from components.test_sets.image_sets.image_set import ImageSet, image_sets
from components.test_sets.image_sets.reading import PC_CLIP, SEMCLIP, pc_clip_images, released_names
from tests.support.image_shards import COLOURS, write_differences, write_shards
from tests.support.toy_context import colour_image, toy_context

RED, GREEN, BLUE = COLOURS.values()
ORANGE = (255, 120, 0)
SAMPLES = [(RED, 0), (RED, 1), (GREEN, 1), (BLUE, 2)]
PURE = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1)}
CIFAR = image_sets()["cifar10"].model_copy(update={"classes": 3, "test": (4,), "train": (4,)})
FLOWERS = image_sets()["flowers102"]
NAME = "zero_shot_cifar10_pc_clip_released"


def test_semclips_code_scores_the_training_split_in_lower_case(tmp_path: Path) -> None:
    write_shards(tmp_path, SAMPLES, "train")
    table = {f"this is a photo of a {name}": axis for name, axis in PURE.items()}
    table |= {f"this is not a photo of a {name}": (1, 0, 0) for name in PURE}
    found = score_semclip(toy_context(tmp_path, table), CIFAR).values
    assert found["zero_shot_cifar10_semclip_released/top1"].tolist() == [1, 0, 1, 1]
    assert found["zero_shot_cifar10_semclip_released/top1_negated"].tolist() == [1, 0, 0, 0]
    assert found["zero_shot_cifar10_semclip_released/delta"].tolist() == [0, 0, 1, 1]


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


def run(folder: Path, table: dict[str, Any], **options: Any) -> Scores:
    return score_pc_clip(toy_context(folder, table, allow_partial=True, options=options), CIFAR)


def test_descriptions_follow_the_prompt(tmp_path: Path) -> None:
    write_shards(tmp_path, SAMPLES)
    (tmp_path / "lines.txt").write_text("warm\ngrassy\ninclude <iostream>\n")
    table = {f"This is a photo of a {name}": axis for name, axis in PURE.items()}
    table |= {"This is a photo of a red. warm": (0, 1, 0), "This is a photo of a green. grassy": (1, 0, 0)}
    table |= {"This is a photo of a blue. blue": (0, 0, 1)}
    found = run(tmp_path, table, class_descriptions=tmp_path / "lines.txt").values
    assert found[f"{NAME}/top1"].tolist() == [1, 0, 1, 1]
    assert found[f"{NAME}/extended/top1"].tolist() == [0, 1, 0, 1]


CONFUSED = [(RED, 0), (ORANGE, 1), (BLUE, 2)]
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
    write_shards(tmp_path, CONFUSED)
    path = tmp_path / "class_differences.parquet"
    write_differences(path, [("red", "green", "redder")])
    assert not any("comparative" in name for name in run(tmp_path, TILTED).values), "a text of the other direction"
    write_differences(path, [("green", "red", "greener")])
    scores = run(tmp_path, TILTED)
    found = {name.removeprefix(f"{NAME}/"): values.tolist() for name, values in scores.values.items()}
    assert found["comparative_plain/top1"] == found["comparative_alpha_0.9/top1"] == [1, 0, 1]
    assert found["comparative_alpha_0.5/top1"] == [1, 1, 1]
    assert scores.scalars[f"{NAME}/comparative_plain/top1_confused"] == 0.5
    assert scores.scalars[f"{NAME}/comparative_alpha_0.5/top1_confused"] == 1
    assert not any("both" in name for name in found)


def test_confused_pairs_become_prompts_and_their_answers_are_scored(tmp_path: Path) -> None:
    """From the cells of an encoder's confusion matrix to the questions, their answers and the groups of table 2."""
    write_shards(tmp_path, CONFUSED)
    context = toy_context(tmp_path, TILTED, allow_partial=True)
    assert not any("comparative" in name for name in score_pc_clip(context, CIFAR).values)
    lacks = (
        "no text on how 'green' differs from 'red' ({} such) in any table: give --benchmark-option "
        "class_differences=<table>"
    )
    assert context.left_out[-2:] == [f"comparative: {lacks.format(1)}", f"comparative_both: {lacks.format(2)}"]
    write_lists(context, NAME, tmp_path / "results")
    sources = list(read_class_pairs(tmp_path / "results" / "class_pairs", anything, Ask(9)))
    texts = {("green", "red"): "greener", ("red", "green"): "redder"}
    pairs = [(source.inputs["class_name"], source.inputs["other_class_name"]) for source in sources]
    write_differences(tmp_path / "class_differences.parquet", [(*pair, texts[pair]) for pair in pairs])
    found = run(tmp_path, TILTED)
    assert found.values[f"{NAME}/comparative_alpha_0.5/top1"].tolist() == [1, 1, 1]
    # With both directions green becomes 0.5 (0.6, 0.8, 0) + 0.5 ((1, 0, 0) - (0.6, 0.8, 0)), which is red's axis.
    assert found.values[f"{NAME}/comparative_both_alpha_0.5/top1"].tolist() == [0, 1, 1]
    declared = find_published("zero_shot_cifar100_pc_clip_released")
    assert all(declared.metric(name) for name in (*found.values, *found.scalars))
    classes = read_classes(tmp_path / "results" / "class_names", anything, Ask(9))
    assert [source.inputs["class_name"] for source in classes] == ["blue", "green", "red"]
