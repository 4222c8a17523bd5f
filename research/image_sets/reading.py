"""Reads an image set in whichever layout it is stored, with class names, prompt templates and texts about classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from components.core.compute.metrics import Indices
from components.core.system.errors import InputError
from components.core.tables.records import CLASS_DESCRIPTIONS, CLASS_DIFFERENCES
from components.data.test_sets.files import TestSetFiles, drawn
from components.data.test_sets.readers.difference_sets import lines
from research.image_sets import arrays, listed
from research.image_sets.folders import IMAGE_FOLDER, WEBDATASET
from research.image_sets.image_set import PUBLISHED, ImageSet, ImageSetFacts, Layout, default_templates, imagenet_names

CLASS_NAMES = "classnames.txt"
TEMPLATES = "zeroshot_classification_templates.txt"
SLOT = "{c}"
LAYOUTS = listed.LAYOUTS | arrays.LAYOUTS
"""By their names in assets/image_sets.yaml."""


def read_image_set(files: TestSetFiles, facts: ImageSetFacts, split: str = "test") -> ImageSet:
    """A split of the image set, with class names and templates.

    `classnames.txt` and `zeroshot_classification_templates.txt` next to the images, one per line, have priority over
    the facts of the set.
    """
    layout, path = find_layout(files.folder, facts, split)
    found = layout.read(files, path, facts, split)
    published = facts.counts(split)
    count = len(found.pictures)
    files.expect(f"{path.name}: {split} images", count, count if count in published else published[0])
    if not count:
        raise InputError(f"{path} holds no images: fetch the {split} split of {facts.title} again")
    names = class_names(files.folder, facts, found)
    if found.labels.max() >= len(names):
        raise InputError(f"{path}: a label is {found.labels.max()}, but there are {len(names)} classes: fetch it again")
    return replace(found, class_names=names, templates=templates(files.folder, facts))


def find_layout(folder: Path, facts: ImageSetFacts, split: str) -> tuple[Layout, Path]:
    """The first layout that contains the split, and the path of the split."""
    published = [LAYOUTS[facts.layout]] if facts.layout else []
    layouts = [WEBDATASET, *published, IMAGE_FOLDER]
    for layout in layouts:
        path = layout.find(folder, facts, split)
        if path is not None:
            return layout, path
    expected = " or ".join(layout.description.format(split=split) for layout in layouts)
    raise InputError(f"{folder} has no {split} images of {facts.title}: put there {expected}")


def class_names(folder: Path, facts: ImageSetFacts, found: ImageSet) -> Sequence[str]:
    """Names in the order of the classes."""
    names = lines(folder / CLASS_NAMES) if (folder / CLASS_NAMES).exists() else _known_names(facts, found)
    if names is None:
        raise InputError(f"{folder / CLASS_NAMES} is missing: put there the {facts.classes} class names, one per line")
    if len(names) != facts.classes:
        raise InputError(
            f"{folder}: {len(names)} class names, but {facts.title} has {facts.classes} classes: fix {CLASS_NAMES}"
        )
    return names


def templates(folder: Path, facts: ImageSetFacts) -> Sequence[str]:
    """Prompt templates with `{c}` for the class."""
    path = folder / TEMPLATES
    if not path.exists():
        return default_templates(facts)
    found = lines(path)
    for number, template in enumerate(found):
        if SLOT not in template:
            raise InputError(f"{path}: line {number} has no {SLOT} for the class: fix it")
    if not found:
        raise InputError(f"{path} is empty: put a template with {SLOT} on each line, or delete it")
    return found


def _known_names(facts: ImageSetFacts, found: ImageSet) -> Sequence[str] | None:
    known = facts.class_names
    if known == PUBLISHED:
        return None
    return imagenet_names(known) if isinstance(known, str) else known or found.class_names


_TORCHVISION_FLOWERS = {
    "globe flower": "globe-flower",
    "pink and yellow dahlia": "pink-yellow dahlia?",
    "air plant": "ball moss",
}
SEMCLIP: Mapping[str, Mapping[str, str]] = {"flowers102": _TORCHVISION_FLOWERS}
PC_CLIP: Mapping[str, Mapping[str, str]] = {
    "flowers102": _TORCHVISION_FLOWERS | {"colt's foot": "colts foot"},
    "cifar100": {"crab": "cra"},
}


def released_names(
    folder: Path, facts: ImageSetFacts, found: ImageSet, renamed: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Class names as the papers' released code has them, in the order of the classes.

    Args:
        renamed: set -> name -> the code's name.
    """
    known: Sequence[str] | None = next(
        (names for names in (facts.class_folders, facts.class_names, found.torchvision_names) if names), None
    )
    if known is None and not any(" " in name for name in found.class_names or ()):
        known = found.class_names
    if known is None or isinstance(known, str):
        raise InputError(
            f"{folder} does not have the exact class names of {facts.title} that the released code uses: "
            "put there the files of its authors"
        )
    return [renamed.get(facts.name, {}).get(name, name) for name in known]


def pc_clip_images(files: TestSetFiles, facts: ImageSetFacts, split: str = "test") -> ImageSet:
    """The published split, or of a set with `whole` the code's own nine tenths for `train` and tenth for `test`."""
    if facts.whole is None:
        return read_image_set(files, facts, split)
    whole = read_image_set(files, facts, "whole")
    count = len(whole.labels)
    order, cut = drawn(count, count, 0), int(count * 0.9)
    return whole.of_rows(order[:cut] if split == "train" else order[cut:])


ASKED_CLASSES, ASKED_PAIRS = "class_names", "class_pairs"
"""Names, in `PublishedContext.lists`, of the rows that the tasks `class_description` and `class_difference` read."""


@dataclass(frozen=True)
class ClassDifferences:
    """Texts about how classes differ.

    Attributes:
        texts: how a thing of class `described` looks different from one of class `other`.
        described: class numbers `[texts]`.
    """

    texts: Sequence[str]
    described: Indices
    other: Indices


def class_descriptions(path: Path, classes: Sequence[str]) -> list[list[str]] | None:
    """Descriptions of each class, in the order of the classes; None if the file is about other classes.

    A `.txt` file has a line for each class, as PC-CLIP's `extended_classes` do; other files are tables of
    class descriptions, of which every sample counts.
    """
    if path.suffix == ".txt":
        descriptions = lines(path)
        if len(descriptions) != len(classes):
            raise InputError(
                f"{path} has {len(descriptions)} lines for {len(classes)} classes: write one description per line"
            )
        return [[line] for line in descriptions]
    table = CLASS_DESCRIPTIONS.read(path)
    texts: dict[str, list[str]] = {}
    for name, description in zip(table["class_name"].to_pylist(), table["description"].to_pylist(), strict=True):
        texts.setdefault(_key(name), []).append(description)
    missing = [name for name in classes if _key(name) not in texts]
    if len(missing) == len(classes):
        return None
    if missing:
        raise InputError(
            f"{path} has no description of '{missing[0]}' ({len(missing)} such): run task class_description"
        )
    return [texts[_key(name)] for name in classes]


def class_differences(path: Path, *names: Sequence[str]) -> ClassDifferences | None:
    """Differences between classes of the set; rows about other classes are skipped, None if no row remains.

    Args:
        names: of all classes in their order; several lists if classes have several names.
    """
    table = CLASS_DIFFERENCES.read(path)
    numbers = {_key(name): number for classes in names for number, name in enumerate(classes)}
    columns = (table[name].to_pylist() for name in ("class_name", "other_class_name", "difference"))
    rows = [
        (text, numbers[_key(name)], numbers[_key(other)])
        for name, other, text in zip(*columns, strict=True)
        if {_key(name), _key(other)} <= numbers.keys() and _key(name) != _key(other)
    ]
    if not rows:
        return None
    texts, described, others = zip(*rows, strict=True)
    return ClassDifferences(texts, np.array(described, dtype=np.int64), np.array(others, dtype=np.int64))


def _key(name: str) -> str:
    return " ".join(name.lower().replace("_", " ").split())
