"""Difference-based classification and Spot-the-Difference on tiny files in the published formats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from components.captions.prompting.readers import Ask, anything, read_caption_pairs
from components.core.tables.records import DIFFERENCES_CUB, PAIRS
from components.data.source import Pair, Sample
from components.data.test_sets.readers import difference_sets
from components.evaluation.benchmarks.published import difference_classification as benchmark
from tests.support.published import refused, scored
from tests.unit.data.test_sets.writing import write_files

RED, GREEN, BLUE, GREY = (255, 0, 0), (0, 255, 0), (0, 0, 255), (128, 128, 128)
FIRST, SECOND = (1, -1, 0), (-1, 1, 0)
"""Where a text points when the first image is red and the second green, and the other way round."""


def _awa2(folder: Path, own_zebra: bool = False) -> None:
    """Classes zebra, ant, cow; the test classes are cow and ant, whose labels are 1 and 0.

    The released code takes zebra and ant for ant and cow: both are "small", unless the zebra is `own_zebra`.
    """
    names = [f"p{number}" for number in range(1, 86)]
    names[14], names[15], names[33], names[34] = "big", "small", "smelly", "flys"
    _numbered(folder / "classes.txt", ["zebra", "ant", "cow"])
    _numbered(folder / "predicates.txt", names)
    (folder / "testclasses.txt").write_text("cow\nant\n")
    matrix = np.zeros((3, 85), dtype=int)
    matrix[0, [0] if own_zebra else [0, 15]] = matrix[1, [33, 34, 15]] = matrix[2, [14, 33, 1]] = 1
    np.savetxt(folder / "predicate-matrix-binary.txt", matrix, fmt="%d")
    classes = {"ant": RED, "cow": GREEN}
    images = {f"{name}/{name}_1000{number}": colour for name, colour in classes.items() for number in range(2)}
    write_files(folder / "JPEGImages", {f"{name}.jpg": colour for name, colour in images.items()})


def _numbered(path: Path, names: Sequence[str]) -> None:
    path.write_text("".join(f"{number:8d}\t{name}\n" for number, name in enumerate(names, 1)))


PAPER = "The first image has attributes of {}, while the second image has attributes of {}."
AWA2_TABLE = {
    PAPER.format("small, flys", "p2, big"): FIRST,
    PAPER.format("p2, big", "small, flys"): SECOND,
    # The released code has zebra's row for ant, ant's for cow, and leaves out `flys` for `smelly`.
    PAPER.format("p1", "small, smelly")[:-1]: FIRST,
    PAPER.format("small, smelly", "p1")[:-1]: FIRST,
    "The first image contains an animal is small, while the second image contains an animal that is large.": FIRST,
    benchmark.BIG_FIRST: SECOND,
    benchmark.LITTLE_FIRST: FIRST,
}


def test_awa2_finds_rows_by_name_or_by_label_and_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    _awa2(tmp_path)
    refused("difference_awa2", tmp_path, "no pair of different groups", AWA2_TABLE, allow_partial=True)
    _awa2(tmp_path, own_zebra=True)
    scores = scored("difference_awa2", tmp_path, AWA2_TABLE)
    found = scores.values
    assert found["paper/accuracy"] == found["size_corrected/accuracy"] == [1] * 20
    assert scores.scalars["paper/standard_error"] == 0
    # The text points to the ant whichever comes first: right where the ant does, in 4 pairs of each draw.
    assert 0 < sum(found["released/accuracy"]) < len(found["released/accuracy"]) == 20
    assert scores.strata["released/accuracy"] == np.repeat(range(5), 4).tolist()
    assert len(found["size_released/accuracy"]) == 4
    assert "size_released/standard_error" not in scores.scalars
    assert "classes.txt: 3 found, 50 published" in scores.notes
    for name, file, content, message in (
        ("awa2", "classes.txt", b"antelope 1\n", "line 1 is not '1<tab>name'"),
        ("awa2", "predicates.txt", b"1\tbig\n", "has 1 names, not 85"),
        ("awa2", "testclasses.txt", b"unicorn\n", "'unicorn' is not in classes.txt"),
        ("awa2", "predicate-matrix-binary.txt", b"0 x\n", "is damaged"),
        ("awa2", "predicate-matrix-binary.txt", b"0 1\n", "holds no 3 x 85 zeros and ones"),
        ("cifar100_size", "test.bin", bytes(12_295), r"test.bin is not a whole number of records of 3074 bytes"),
        ("cifar100_size", "fine_label_names.txt", b"lion", "has 1 names, but test.bin has label 88"),
    ):
        _awa2(tmp_path)
        _cifar(tmp_path)
        (tmp_path / file).write_bytes(content)
        refused(f"difference_{name}", tmp_path, message, AWA2_TABLE, allow_partial=True)
    _awa2(tmp_path)
    (tmp_path / "JPEGImages/ant").rename(tmp_path / "elsewhere")
    refused("difference_awa2", tmp_path, r"JPEGImages/ant is missing", AWA2_TABLE, allow_partial=True)


def _cifar(folder: Path) -> None:
    coarse = [f"coarse{number}" for number in range(20)]
    coarse[8], coarse[11], coarse[16] = "large_carnivores", "large_omnivores_and_herbivores", "small_mammals"
    coarse[9] = "large_man-made_outdoor_things"
    fine = "\n".join(f"fine{number}" for number in range(100))
    # A lion, a tiger, a shrew, a bridge.
    records = [(8, 43, RED), (8, 88, BLUE), (16, 74, GREEN), (9, 12, GREY)]
    content = b"".join(bytes([one, two, *np.repeat(colour, 1024).tolist()]) for one, two, colour in records)
    names = {"coarse_label_names.txt": "\n".join(coarse), "fine_label_names.txt": fine}
    write_files(folder, names | {"test.bin": content})


def test_cifar100_goes_by_coarse_labels_in_the_paper_and_by_eight_classes_in_the_released_code(tmp_path: Path) -> None:
    _cifar(tmp_path)
    text = "The first image contains a {} animal, {} the second contains a {} animal."
    table = {
        text.format("larger", "while", "smaller"): (0, -1, 0),
        text.format("smaller", "while", "larger"): (0, 1, 0),
        text.format("larger", "whiel", "smaller"): (0, 1, 0),
    }
    found = scored("difference_cifar100_size", tmp_path, table)
    assert found.values["paper/accuracy"] == [1] * 10
    # One pair a draw, right where the shrew was drawn first: the other sentence points the wrong way.
    order = [benchmark.drawn(2, 100, seed)[0] for seed in range(5)]
    assert found.values["released/accuracy"] == order
    assert "test.bin: 4 found, 10,000 published" in found.notes


def test_flowers_by_the_classes_that_exist_and_by_those_of_the_released_code(tmp_path: Path) -> None:
    # A training image, a sunflower and a grape hyacinth; a snapdragon and a canterbury bell.
    savemat(tmp_path / "imagelabels.mat", {"labels": np.array([[54, 54, 25, 11, 3]])})
    savemat(tmp_path / "setid.mat", {"trnid": [[1]], "valid": [[1]], "tstid": np.arange(2, 6)[None]})
    colours = enumerate([GREY, RED, GREEN, GREEN, RED], 1)
    write_files(tmp_path / "jpg", {f"image_{number:05d}.jpg": colour for number, colour in colours})
    table = {
        "The first flower is yellow, while the second is blue.": FIRST,
        "The first flower is blue, while the second is yellow.": SECOND,
    }
    found = scored("difference_flowers102", tmp_path, table).values
    assert (found["corrected/accuracy"], found["released/accuracy"]) == ([1] * 5, [0] * 5)


AUK, TIT = "001.Auk/a.jpg", "002.Tit/c.jpg"


def _cub(folder: Path, rows: Sequence[tuple[str, str, str]]) -> None:
    write_files(folder, {
        "images.txt": "1 001.Auk/a.jpg\n2 001.Auk/b.jpg\n3 002.Tit/c.jpg\n", "train_test_split.txt": "1 0\n2 1\n3 0\n",
        f"images/{AUK}": RED, f"images/{TIT}": GREEN,
    })  # fmt: skip
    columns = dict(zip(("id", "other_id", "difference"), map(list, zip(*rows, strict=True)), strict=True))
    same = {"sample": 0, "caption": "a", "other_caption": "b", "similarity": 0.5}
    columns |= {name: [value] * len(rows) for name, value in same.items()}
    DIFFERENCES_CUB.write(folder / "differences.parquet", columns)


def test_cub_by_hand_with_a_tie_and_with_what_the_prompt_task_wrote(tmp_path: Path) -> None:
    training = "001.Auk/b.jpg"
    _cub(tmp_path, [(AUK, TIT, "redder"), (TIT, AUK, "redder"), (AUK, AUK, "the same"), (training, AUK, "x")])
    found = scored("difference_cub", tmp_path, {"redder": FIRST, "the same": FIRST})
    assert (sum(found.values["paper/accuracy"]), sum(found.values["released/accuracy"])) == (5 * 2, 5 * 1)
    assert any("1 of 4 rows do not name two test images, first 001.Auk/b.jpg" in note for note in found.notes)
    assert any("3 differences are too few for 5 draws of 5,000 that differ" in note for note in found.notes)
    # The task knows pairs by hashes; `pairs.parquet`, its input table, has the pictures.
    _cub(tmp_path, [("none", "none", "none")])
    captions = {AUK: "a red bird", TIT: "a green bird"}
    pictures = {caption: (tmp_path / "images" / name).read_bytes() for name, caption in captions.items()}
    rows = [Pair("train", Sample.of(picture), caption).row() for caption, picture in pictures.items()]
    PAIRS.write(tmp_path / "elsewhere.parquet", {name: [row[name] for row in rows] for name in rows[0]})
    sources = list(read_caption_pairs(tmp_path / "elsewhere.parquet", anything, Ask(9, pairs=2)))
    texts = {"a red bird": "redder", "a green bird": "greener"}
    _cub(tmp_path, [(one.id, str(one.other_id), texts[one.inputs["caption"]]) for one in sources])
    table = {"redder": FIRST, "greener": SECOND}
    context = refused("difference_cub", tmp_path, "a draw has no pair", table, allow_partial=True)
    assert any("2 of 2 rows do not name two test images" in note and "pairs.parquet" in note for note in context.notes)
    (tmp_path / "elsewhere.parquet").rename(tmp_path / "pairs.parquet")
    assert scored("difference_cub", tmp_path, table).values["released/accuracy"] == [1] * 5 * 2


def test_cubs_draws_are_of_more_differences_than_one_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difference_sets, "CUB_IMAGES", 2)
    rows, table = [(AUK, TIT, text) for text in ("redder", "greener")] * 10_000, {"redder": FIRST, "greener": SECOND}
    _cub(tmp_path, rows)
    found = scored("difference_cub", tmp_path, table, allow_partial=False)
    runs = np.reshape(found.values["released/accuracy"], (5, 5_000))
    assert len({run.tobytes() for run in runs}) == 5
    assert 0 < found.scalars["released/standard_error"] == pytest.approx(runs.mean(1).std() / 5**0.5)
    for few in (5_000, 9_999):
        _cub(tmp_path, rows[:few])
        refused("difference_cub", tmp_path, "draws of 5,000 that differ: the paper has those of all 159,600", table)


SPOT_ROWS: list[dict[str, Any]] = [
    {"img_id": "256", "sentences": ["it is green now", "nothing has changed"]},
    {"img_id": "7", "sentences": ["it is red now"]},
    {"img_id": "256", "sentences": ["the red is gone"]},
    {"img_id": "8", "sentences": []},
]
"""Two rows of one pair; a pair without a description; pairs 7 and 8 show the same."""
SPOT_TABLE = {
    **{"it is green now": (0, 1, 0), "the red is gone": (-1, 0, 0)},
    **{"it is red now": (1, 0, 0), "nothing has changed": (0, 0, 1)},
}


def _write_spot(folder: Path) -> None:
    before, after = {"256": RED, "7": GREEN, "8": GREEN}, {"256_2": GREEN, "7_2": RED, "8_2": RED}
    pictures = {f"resized_images/{name}.png": colour for name, colour in (before | after).items()}
    write_files(folder, {"annotations/test.json": SPOT_ROWS, **pictures})


def test_sentences_find_what_image_2_has_ties_are_lost_and_missing_files_named(tmp_path: Path) -> None:
    _write_spot(tmp_path)
    found = scored("spot_the_difference", tmp_path, SPOT_TABLE, ks=(1, 2, 3))
    # Sentences pair by pair: green, nothing (ties with all), red is gone; then red, which two pairs show.
    assert found.values["recall_at_1"] == [1, 0, 1, 0]
    assert found.values["recall_at_2"] == [1, 0, 1, 1]
    assert found.values["recall_at_3"] == [1, 1, 1, 1]
    assert found.notes == ["annotations/test.json: 4 found, 1,404 published"]
    _write_spot(tmp_path)
    (tmp_path / "resized_images/7_2.png").unlink()
    refused("spot_the_difference", tmp_path, r"7_2.png is missing", SPOT_TABLE, allow_partial=True)
    write_files(tmp_path, {"annotations/test.json": [{"img_id": "256", "sentences": [1, " "]}]})
    refused("spot_the_difference", tmp_path, "has no sentences", SPOT_TABLE, allow_partial=True)
