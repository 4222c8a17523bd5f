"""Image sets: published facts of each set, a split in memory, layouts, and readers of text and MATLAB files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict

from components.core.compute.metrics import Indices
from components.core.system.errors import InputError
from components.data.test_sets.files import LazyPicture, TestSetFiles

IMAGENET = "imagenet"
"""Marks class names, templates or class folders that open_clip and timm provide."""
PUBLISHED = "published"
"""Marks class names that only a file next to the images provides."""

_IMAGENET_CLASSES = 1000


class ImageSetFacts(BaseModel):
    """Facts of one image set; `assets/image_sets.yaml` explains each field."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str
    classes: int
    test: tuple[int, ...]
    train: tuple[int, ...] = ()
    whole: int | None = None
    templates: str
    class_names: tuple[str, ...] | str | None = None
    class_folders: tuple[str, ...] | str | None = None
    folders: tuple[str, ...] = ("test",)
    layout: str | None = None
    size: str
    licence: str
    source: str
    citation: str

    def counts(self, split: str) -> tuple[int, ...]:
        """Published numbers of images of `test`, `train` or `whole`; empty if no such split is published."""
        return {"test": self.test, "train": self.train, "whole": (self.whole,) if self.whole else ()}[split]


@cache
def image_sets() -> dict[str, ImageSetFacts]:
    """All image sets by name, in the order of the file."""
    rows = yaml.safe_load(resources.files(__package__).joinpath("assets/image_sets.yaml").read_text("utf-8"))
    return {name: ImageSetFacts(name=name, **row) for name, row in rows.items()}


@cache
def template_lists() -> dict[str, tuple[str, ...]]:
    """Prompt templates by name, `{c}` for the class; ImageNet's 80 come from open_clip."""
    rows = yaml.safe_load(resources.files(__package__).joinpath("assets/templates.yaml").read_text("utf-8"))
    return {name: tuple(row) for name, row in rows.items()}


def default_templates(facts: ImageSetFacts) -> tuple[str, ...]:
    """CLIP's templates for an image set."""
    if facts.templates != IMAGENET:
        return template_lists()[facts.templates]
    from open_clip import OPENAI_IMAGENET_TEMPLATES

    return tuple(template("{c}") for template in OPENAI_IMAGENET_TEMPLATES)


@cache
def wnids() -> tuple[str, ...]:
    """ImageNet's 1,000 synset ids in the order of the classes, which is the alphabetical one."""
    return _timm_lines("imagenet_synsets")


def subset(name: str) -> tuple[int, ...]:
    """Class numbers of `imagenet`, `imagenet_a` or `imagenet_r` within the 1,000."""
    return tuple(range(_IMAGENET_CLASSES)) if name == "imagenet" else tuple(map(int, _timm_lines(f"{name}_indices")))


def imagenet_names(name: str) -> tuple[str, ...]:
    """CLIP's names of the classes of `imagenet`, `imagenet_a` or `imagenet_r`, in their order."""
    from open_clip import IMAGENET_CLASSNAMES

    return tuple(IMAGENET_CLASSNAMES[number] for number in subset(name))


def imagenet_folders(name: str) -> tuple[str, ...]:
    """Class folders in their order: synset ids of a subset of ImageNet, or 0 to 999 for `numbers` (ImageNet-V2)."""
    if name == "numbers":
        return tuple(map(str, range(_IMAGENET_CLASSES)))
    return tuple(wnids()[number] for number in subset(name))


def _timm_lines(name: str) -> tuple[str, ...]:
    return tuple(resources.files("timm.data").joinpath(f"_info/{name}.txt").read_text("utf-8").split())


@dataclass(frozen=True)
class ImageSet:
    """Labelled pictures.

    Attributes:
        labels: class of each `[images]`, counted from 0.
        templates: published with the images, `{c}` for the class; None if there are none.
        torchvision_names: exactly as in torchvision, such as `apple_pie`, because the papers' released code puts them
            into prompts; None if the files do not have them.
    """

    pictures: Sequence[LazyPicture]
    labels: Indices
    class_names: Sequence[str] | None = None
    templates: Sequence[str] | None = None
    torchvision_names: Sequence[str] | None = None

    def of_rows(self, rows: Indices) -> ImageSet:
        """The set with only these of its pictures, in this order."""
        return replace(self, pictures=[self.pictures[row] for row in rows], labels=self.labels[rows])


Find = Callable[[Path, ImageSetFacts, str], Path | None]
"""Finds a split below the set's folder; None if it is not in this layout."""


@dataclass(frozen=True)
class Layout:
    """A file layout in which image sets are published.

    Attributes:
        description: expected files, for the message if none is found; `{split}` stands for the split.
        read: reads the split at that path; raises `InputError` if a file is missing or damaged.
    """

    description: str
    find: Find
    read: Callable[[TestSetFiles, Path, ImageSetFacts, str], ImageSet]


def first_existing(folder: Path, *paths: str) -> Path | None:
    """The first of `paths` below `folder` that exists."""
    return next((folder / path for path in paths if (folder / path).exists()), None)


def unpacked(inside: str, archive: str) -> Find:
    """Finds the set's folder if it holds the file or folder `inside`, otherwise the folder `archive` in it."""
    return lambda folder, _facts, _split: folder if (folder / inside).exists() else first_existing(folder, archive)


def whole_number(path: Path, text: str) -> int:
    """`text` of `path` as a number."""
    if not text.isdecimal() or len(text) > 9:
        raise InputError(f"{path}: '{text[:40]}' is not a number: fetch the file again")
    return int(text)
