"""CUB-200-2011: `images.txt`, `image_class_labels.txt`, `train_test_split.txt` and `classes.txt`, joined by their ids.

A class "001.Black_footed_Albatross" is called "Black footed Albatross".
"""

from __future__ import annotations

from pathlib import Path

from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.facts import ImageSetFacts
from components.benchmarks.image_sets.image_set import ImageSet, Layout, first_existing
from components.benchmarks.image_sets.listed import listed
from components.benchmarks.image_sets.text_files import table
from components.core.errors import InputError

_IS_TRAINING = {"test": "0", "train": "1"}


def _find(folder: Path, _facts: ImageSetFacts, _split: str) -> Path | None:
    return folder if (folder / "train_test_split.txt").is_file() else first_existing(folder, "CUB_200_2011")


def _read(_context: PublishedContext, path: Path, _facts: ImageSetFacts, split: str) -> ImageSet:
    images, labels, splits, classes = (
        dict(table(path / f"{name}.txt", 2)) for name in ("images", "image_class_labels", "train_test_split", "classes")
    )
    for name, found in {"image_class_labels": labels, "train_test_split": splits}.items():
        if found.keys() != images.keys():
            raise InputError(f"{path / name}.txt names other images than images.txt: fetch the set again")
    names = {number: name.partition(".")[2] for number, name in classes.items()}
    chosen = [number for number in images if splits[number] == _IS_TRAINING[split]]
    rows = [(images[number], names.get(labels[number], "")) for number in chosen]
    return listed(path / "images.txt", path / "images", rows, list(names.values()))


LAYOUT = Layout("the authors' files (CUB_200_2011/images.txt, train_test_split.txt and so on)", _find, _read)
