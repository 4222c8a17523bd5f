"""Finds the layout in which an image set lies, reads it, and gives each class its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.facts import PUBLISHED, ImageSetFacts, default_templates, imagenet_names
from components.benchmarks.image_sets.image_set import ImageSet, Layout, lines
from components.benchmarks.image_sets.layouts import arrays, listed
from components.benchmarks.image_sets.layouts.folders import IMAGE_FOLDER, WEBDATASET
from components.core.errors import InputError

CLASS_NAMES = "classnames.txt"
TEMPLATES = "zeroshot_classification_templates.txt"
SLOT = "{c}"
LAYOUTS = listed.LAYOUTS | arrays.LAYOUTS
"""By their names in assets/image_sets.yaml."""


def read_image_set(context: PublishedContext, facts: ImageSetFacts, split: str = "test") -> ImageSet:
    """A split of the image set in the context's folder, with class names and templates.

    `classnames.txt` and `zeroshot_classification_templates.txt` beside the images, one per line, come before what is
    known of the set.

    Raises:
        InputError: no known layout is there, files are missing or damaged, or images or classes are not as published.
    """
    layout, path = find_layout(context.folder, facts, split)
    found = layout.read(context, path, facts, split)
    published = facts.counts(split)
    count = len(found.pictures)
    context.expect(f"{path.name}: {split} images", count, count if count in published else published[0])
    if not count:
        raise InputError(f"{path} holds no images: fetch the {split} split of {facts.title} again")
    names = class_names(context.folder, facts, found)
    if found.labels.max() >= len(names):
        raise InputError(f"{path}: a label is {found.labels.max()}, but there are {len(names)} classes: fetch it again")
    return replace(found, class_names=names, templates=templates(context.folder, facts))


def find_layout(folder: Path, facts: ImageSetFacts, split: str) -> tuple[Layout, Path]:
    """The first layout in which the split is there, and where it lies.

    Raises:
        InputError: there is none.
    """
    own = [LAYOUTS[facts.layout]] if facts.layout else []
    known = [WEBDATASET, *own, IMAGE_FOLDER]
    for layout in known:
        path = layout.find(folder, facts, split)
        if path is not None:
            return layout, path
    looked = " or ".join(layout.told.format(split=split) for layout in known)
    raise InputError(f"{folder} has no {split} images of {facts.title}: put there {looked}")


def class_names(folder: Path, facts: ImageSetFacts, found: ImageSet) -> Sequence[str]:
    """Names in the order of the classes.

    Raises:
        InputError: there are none, or not as many as classes are published.
    """
    names = lines(folder / CLASS_NAMES) if (folder / CLASS_NAMES).exists() else _known_names(facts, found)
    if names is None:
        raise InputError(f"{folder / CLASS_NAMES} is missing: put there the {facts.classes} class names, one per line")
    if len(names) != facts.classes:
        raise InputError(
            f"{folder}: {len(names)} class names, but {facts.title} has {facts.classes} classes: fix {CLASS_NAMES}"
        )
    return names


def templates(folder: Path, facts: ImageSetFacts) -> Sequence[str]:
    """Prompt templates with `{c}` for the class.

    Raises:
        InputError: a template of the file has no such place.
    """
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
    """Names in the order of the classes.

    Args:
        folder: the set's, for the message.
        facts: of the set.
        found: the set as it was read, with class names.
        renamed: set -> name -> what the code calls it instead.

    Raises:
        InputError: the set lies in files that do not have the names.
    """
    known: Sequence[str] | None = next(
        (names for names in (facts.class_folders, facts.class_names, found.torchvision_names) if names), None
    )
    if known is None and not any(" " in name for name in found.class_names or ()):
        known = found.class_names
    if known is None or isinstance(known, str):
        raise InputError(
            f"{folder} does not have the class names of {facts.title} letter by letter, which the released code uses: "
            "put there the files of its authors"
        )
    return [renamed.get(facts.name, {}).get(name, name) for name in known]
