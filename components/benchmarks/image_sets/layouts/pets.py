"""Oxford-IIIT Pet: `annotations/test.txt` has rows of image, class from 1, species and breed; `images/` the pictures.

A class is called as its pictures are, each word with a capital: `yorkshire_terrier_1` is of "Yorkshire Terrier".
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.facts import ImageSetFacts
from components.benchmarks.image_sets.image_set import ImageSet, Layout, first_existing
from components.benchmarks.image_sets.listed import listed
from components.benchmarks.image_sets.text_files import table, whole_number
from components.core.errors import InputError

_FILES = {"test": "test.txt", "train": "trainval.txt"}


def _find(folder: Path, _facts: ImageSetFacts, _split: str) -> Path | None:
    return folder if (folder / "annotations").is_dir() else first_existing(folder, "oxford-iiit-pet")


def _read(_context: PublishedContext, path: Path, facts: ImageSetFacts, split: str) -> ImageSet:
    source = path / "annotations" / _FILES[split]
    rows = [(row[0], whole_number(source, row[1])) for row in table(source, 4)]
    names: dict[int, str] = {}
    for image, number in rows:
        name = image.rpartition("_")[0]
        if names.setdefault(number, name) != name:
            raise InputError(f"{source}: class {number} is both '{names[number]}' and '{name}': fetch it again")
    if sorted(names) != list(range(1, facts.classes + 1)):
        raise InputError(f"{source} has {len(names)} classes instead of 1 to {facts.classes}: fetch it again")
    classes = [names[number] for number in sorted(names)]
    found = listed(source, path / "images", [(f"{image}.jpg", names[number]) for image, number in rows], classes)
    titled = [name.title() for name in found.class_names or ()]
    return replace(found, class_names=titled, torchvision_names=titled)


LAYOUT = Layout("the authors' files (annotations/test.txt, annotations/trainval.txt and images/)", _find, _read)
