"""A split of an image set as a layout gives it, and what a layout is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.benchmarks.encoding.picture_source import Picture
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.facts import ImageSetFacts
from components.core.metrics import Indices


@dataclass(frozen=True)
class ImageSet:
    """Labelled pictures.

    Attributes:
        pictures: in the order of the layout.
        labels: class of each `[images]`, counted from 0.
        class_names: as the files call them; None where they do not.
        templates: published beside the images, with `{c}` for the class; None where there are none.
        torchvision_names: letter by letter as torchvision has them, such as `apple_pie`, which is how the papers'
            released code puts them into prompts; None where the files do not have them.
    """

    pictures: Sequence[Picture]
    labels: Indices
    class_names: Sequence[str] | None = None
    templates: Sequence[str] | None = None
    torchvision_names: Sequence[str] | None = None


@dataclass(frozen=True)
class Layout:
    """A way in which image sets are published.

    Attributes:
        told: what lies where, for a message that says what was looked for; `{split}` stands for the split.
        find: where a split lies below the set's folder; None where this layout is not there.
        read: reads the split that `find` found; raises `InputError` where a file is missing or damaged.
    """

    told: str
    find: Callable[[Path, ImageSetFacts, str], Path | None]
    read: Callable[[PublishedContext, Path, ImageSetFacts, str], ImageSet]


def first_existing(folder: Path, *paths: str) -> Path | None:
    """The first of `paths` below `folder` that exists."""
    return next((folder / path for path in paths if (folder / path).exists()), None)
