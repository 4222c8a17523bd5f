"""Layouts of image sets whose authors publish splits as lists of files with the class of each."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from components.core.system.errors import InputError
from components.data.test_sets.files import TestSetFiles, picture_file
from components.data.test_sets.readers.difference_sets import lines, mat_arrays, table
from research.image_sets.image_set import ImageSet, ImageSetFacts, Layout, first_existing, unpacked, whole_number

_UNSAFE = re.compile(r"^/|(^|/)\.\.(/|$)|\0")
_GTSRB = {"test": ("GT-final_test.csv",), "train": ("GTSRB/Training", "GTSRB/Final_Training/Images")}
_SUN = {"test": "Testing_01.txt", "train": "Training_01.txt"}
_LETTER = 2
"""Characters of "a/" before the name of a class of SUN397."""


def listed(source: Path, folder: Path, rows: Iterable[tuple[str, str]], classes: Sequence[str]) -> ImageSet:
    """The images of `rows`, paths below `folder` with a class each; underscores in class names become spaces."""
    numbers = {name: number for number, name in enumerate(classes)}
    pictures, labels = [], []
    for path, name in rows:
        if _UNSAFE.search(path):
            raise InputError(f"{source}: '{path[:80]}' is outside {folder}: fetch the list again")
        if name not in numbers:
            raise InputError(
                f"{source}: '{path[:80]}' is of class '{name[:80]}', which is unknown: fetch the list again"
            )
        pictures.append(picture_file(folder / path))
        labels.append(numbers[name])
    spaced = [" ".join(name.replace("_", " ").split()) for name in classes]
    return ImageSet(pictures, np.array(labels, dtype=np.int64), spaced, torchvision_names=list(classes))


def _find_cars(folder: Path, _facts: ImageSetFacts, split: str) -> Path | None:
    found = first_existing(folder, "devkit", "stanford_cars/devkit")
    return None if found is None or not (found.parent / f"cars_{split}").is_dir() else found.parent


def _cars(_files: TestSetFiles, path: Path, _facts: ImageSetFacts, split: str) -> ImageSet:
    """Records of `annotations` have `fname` and `class`, counted from 1; `class_names` is the list."""
    source = path / {"test": "cars_test_annos_withlabels.mat", "train": "devkit/cars_train_annos.mat"}[split]
    (names,) = mat_arrays(path / "devkit" / "cars_meta.mat", "class_names")
    (records,) = mat_arrays(source, "annotations")
    names = [str(name) for name in np.atleast_1d(names)]
    try:
        rows = [(str(one.fname), int(getattr(one, "class"))) for one in np.atleast_1d(records)]
    except (AttributeError, TypeError, ValueError):
        raise InputError(f"{source}: its records have no fname and class: fetch the file with labels") from None
    chosen = [(file, names[number - 1] if 1 <= number <= len(names) else str(number)) for file, number in rows]
    return listed(source, path / f"cars_{split}", chosen, names)


def _cub(_files: TestSetFiles, path: Path, _facts: ImageSetFacts, split: str) -> ImageSet:
    """Four tables joined by their ids; a class "001.Black_footed_Albatross" is called "Black footed Albatross"."""
    images, labels, splits, classes = (
        dict(table(path / f"{name}.txt", 2)) for name in ("images", "image_class_labels", "train_test_split", "classes")
    )
    for name, found in {"image_class_labels": labels, "train_test_split": splits}.items():
        if found.keys() != images.keys():
            raise InputError(f"{path / name}.txt names other images than images.txt: fetch the set again")
    names = {number: name.partition(".")[2] for number, name in classes.items()}
    chosen = [number for number in images if splits[number] == {"test": "0", "train": "1"}[split]]
    rows = [(images[number], names.get(labels[number], "")) for number in chosen]
    return listed(path / "images.txt", path / "images", rows, list(names.values()))


def _dtd(_files: TestSetFiles, path: Path, _facts: ImageSetFacts, split: str) -> ImageSet:
    """Describable Textures: `banded/banded_0002.jpg` is of the class banded.

    The first of the ten splits; training is its `train1` and `val1` together, as in CLIP's paper (appendix A.1).
    """
    sources = [path / "labels" / name for name in {"test": ("test1.txt",), "train": ("train1.txt", "val1.txt")}[split]]
    rows = [(image, image.partition("/")[0]) for source in sources for image in lines(source)]
    return listed(sources[0], path / "images", rows, sorted({name for _, name in rows}))


def _find_aircraft(folder: Path, _facts: ImageSetFacts, _split: str) -> Path | None:
    found = first_existing(folder, "variants.txt", "data/variants.txt", "fgvc-aircraft-2013b/data/variants.txt")
    return None if found is None else found.parent


def _aircraft(_files: TestSetFiles, path: Path, _facts: ImageSetFacts, split: str) -> ImageSet:
    """Rows of image and variant; training is `trainval`, as in CLIP's paper (appendix A.1)."""
    source = path / {"test": "images_variant_test.txt", "train": "images_variant_trainval.txt"}[split]
    rows = [(f"{image}.jpg", name) for image, name in table(source, 2)]
    return listed(source, path / "images", rows, lines(path / "variants.txt"))


def _food101(_files: TestSetFiles, path: Path, _facts: ImageSetFacts, split: str) -> ImageSet:
    """`meta/test.txt` lists `apple_pie/1011328`."""
    source = path / "meta" / f"{split}.txt"
    rows = [(f"{one}.jpg", one.rpartition("/")[0]) for one in lines(source)]
    return listed(source, path / "images", rows, lines(path / "meta" / "classes.txt"))


def _gtsrb(files: TestSetFiles, path: Path, facts: ImageSetFacts, split: str) -> ImageSet:
    """Test: a table `Filename;Width;...;ClassId`. Training: a folder per class, `00000/00000_00000.ppm`.

    It has no class names: `classnames.txt` of CLIP_benchmark is required.
    """
    if split == "train":
        folder, images = path, sorted(path.glob("*/*.ppm"))
        rows = [(f"{image.parent.name}/{image.name}", image.parent.name.lstrip("0") or "0") for image in images]
    else:
        folder, found = files.folder / "GTSRB/Final_Test/Images", csv.DictReader(lines(path), delimiter=";")
        if not {"Filename", "ClassId"} <= set(found.fieldnames or ()):
            raise InputError(f"{path} has no columns Filename and ClassId: fetch it again")
        rows = [(row["Filename"], row["ClassId"] or "") for row in found]
    named = listed(path, folder, rows, [str(number) for number in range(facts.classes)])
    return ImageSet(named.pictures, named.labels)


def _pets(_files: TestSetFiles, path: Path, facts: ImageSetFacts, split: str) -> ImageSet:
    """Rows of image, class from 1, species and breed.

    A class is named after its pictures, in title case: `yorkshire_terrier_1` is of "Yorkshire Terrier".
    """
    source = path / "annotations" / {"test": "test.txt", "train": "trainval.txt"}[split]
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


def _sun397(files: TestSetFiles, path: Path, _facts: ImageSetFacts, split: str) -> ImageSet:
    """`ClassName.txt` lists `/a/abbey`; `Testing_01.txt` of Partitions.zip lists `/a/abbey/sun_x.jpg`.

    The first of the ten official partitions, 50 images per class for training and testing (19,850 each), is the one of
    CLIP's paper (appendix A.1). CLIP_benchmark's shards hold all 108,754 images. A class is named by its path without
    the letter: "/c/church/indoor" is "church indoor". Split `whole` has all images below the classes' folders, sorted.
    """
    classes = [line.strip("/") for line in lines(path / "ClassName.txt")]
    if split == "whole":
        source = path
        images = sorted(one.relative_to(path).as_posix() for one in path.rglob("sun_*.jpg"))
    else:
        source = first_existing(path, _SUN[split], f"Partitions/{_SUN[split]}") or files.folder / _SUN[split]
        images = [line.strip("/") for line in lines(source)]
    rows = [(image, image.rpartition("/")[0][_LETTER:]) for image in images]
    found = listed(source, path, rows, [name[_LETTER:] for name in classes])
    return replace(found, class_names=[name.replace("/", " ") for name in found.class_names or ()])


_AUTHORS = "the authors' files"
LAYOUTS = {
    "cars": Layout(
        f"{_AUTHORS} (devkit/, cars_test_annos_withlabels.mat, cars_test/ and cars_train/)", _find_cars, _cars
    ),
    "cub": Layout(
        f"{_AUTHORS} (CUB_200_2011/images.txt, train_test_split.txt and so on)",
        unpacked("train_test_split.txt", "CUB_200_2011"),
        _cub,
    ),
    "dtd": Layout(
        f"{_AUTHORS} (labels/test1.txt, labels/train1.txt, labels/val1.txt and images/)",
        unpacked("labels", "dtd"),
        _dtd,
    ),
    "fgvc_aircraft": Layout(
        f"{_AUTHORS} (data/variants.txt, data/images_variant_test.txt and data/images/)", _find_aircraft, _aircraft
    ),
    "food101": Layout(
        f"{_AUTHORS} (meta/classes.txt, meta/{{split}}.txt and images/)", unpacked("meta", "food-101"), _food101
    ),
    "gtsrb": Layout(
        "torchvision's files (GT-final_test.csv and GTSRB/Final_Test/Images, GTSRB/Training)",
        lambda folder, _facts, split: first_existing(folder, *_GTSRB[split]),
        _gtsrb,
    ),
    "pets": Layout(
        f"{_AUTHORS} (annotations/test.txt, annotations/trainval.txt and images/)",
        unpacked("annotations", "oxford-iiit-pet"),
        _pets,
    ),
    "sun397": Layout(
        f"{_AUTHORS} (SUN397/ClassName.txt, Testing_01.txt, Training_01.txt and images)",
        unpacked("ClassName.txt", "SUN397"),
        _sun397,
    ),
}
