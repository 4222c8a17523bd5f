"""GTSRB: `GT-final_test.csv` (`Filename;Width;...;ClassId`) and `GTSRB/Final_Test/Images`, as torchvision unpacks it.

Training images, `GTSRB/Training/00000/00000_00000.ppm`, are in a folder per class. There are no class names in it:
`classnames.txt` of CLIP_benchmark is needed.
"""

from __future__ import annotations

import csv
from pathlib import Path

from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.facts import ImageSetFacts
from components.benchmarks.image_sets.image_set import ImageSet, Layout, first_existing
from components.benchmarks.image_sets.listed import listed
from components.benchmarks.image_sets.text_files import lines
from components.core.errors import InputError

_TABLE = "GT-final_test.csv"
_TRAINING = ("GTSRB/Training", "GTSRB/Final_Training/Images")


def _find(folder: Path, _facts: ImageSetFacts, split: str) -> Path | None:
    return first_existing(folder, _TABLE) if split == "test" else first_existing(folder, *_TRAINING)


def _read(context: PublishedContext, path: Path, facts: ImageSetFacts, split: str) -> ImageSet:
    classes = [str(number) for number in range(facts.classes)]
    if split == "train":
        files = sorted(path.glob("*/*.ppm"))
        rows = [(f"{one.parent.name}/{one.name}", one.parent.name.lstrip("0") or "0") for one in files]
        return _nameless(listed(path, path, rows, classes))
    found = csv.DictReader(lines(path), delimiter=";")
    if not {"Filename", "ClassId"} <= set(found.fieldnames or ()):
        raise InputError(f"{path} has no columns Filename and ClassId: fetch it again")
    rows = [(row["Filename"], row["ClassId"] or "") for row in found]
    return _nameless(listed(path, context.folder / "GTSRB/Final_Test/Images", rows, classes))


def _nameless(found: ImageSet) -> ImageSet:
    return ImageSet(found.pictures, found.labels)


LAYOUT = Layout("torchvision's files (GT-final_test.csv and GTSRB/Final_Test/Images, GTSRB/Training)", _find, _read)
