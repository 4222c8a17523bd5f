"""Reads an image set in whichever layout it is stored, with class names and prompt templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from components.core.system.errors import InputError
from components.test_sets.draws import drawn
from components.test_sets.files import TestSetFiles
from components.test_sets.image_sets import arrays, listed
from components.test_sets.image_sets.folders import IMAGE_FOLDER, WEBDATASET
from components.test_sets.image_sets.image_set import (
    PUBLISHED,
    ImageSet,
    ImageSetFacts,
    Layout,
    default_templates,
    imagenet_names,
    lines,
)

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
        folder: for the message.
        facts: of the set.
        found: the set with class names.
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


_TRAINED_ON = 0.9
"""Share of a set without a split that PC-CLIP's code sets aside for training."""


def pc_clip_images(files: TestSetFiles, facts: ImageSetFacts, split: str = "test") -> ImageSet:
    """The published split, or of a set with `whole` the code's own nine tenths for `train` and tenth for `test`."""
    if facts.whole is None:
        return read_image_set(files, facts, split)
    whole = read_image_set(files, facts, "whole")
    count = len(whole.labels)
    order, cut = drawn(count, count, 0), int(count * _TRAINED_ON)
    return whole.of_rows(order[:cut] if split == "train" else order[cut:])
