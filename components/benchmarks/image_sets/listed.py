"""Image sets whose splits are lists of files with the class of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from components.benchmarks.encoding.picture_source import picture_file
from components.benchmarks.image_sets.image_set import ImageSet
from components.core.errors import InputError

_UNSAFE = re.compile(r"^/|(^|/)\.\.(/|$)|\0")


def listed(source: Path, folder: Path, rows: Iterable[tuple[str, str]], classes: Sequence[str]) -> ImageSet:
    """The images of `rows`, paths below `folder` with a class each; class names get spaces for underscores.

    Args:
        source: the list, for messages.
        folder: where the images are.
        rows: path and class.
        classes: as the rows call them, in their order.

    Raises:
        InputError: a path leads out of the folder, an image is missing, or a class is unknown.
    """
    numbers = {name: number for number, name in enumerate(classes)}
    pictures, labels = [], []
    for path, name in rows:
        if _UNSAFE.search(path):
            raise InputError(f"{source}: '{path[:80]}' leads out of {folder}: fetch the list again")
        if name not in numbers:
            raise InputError(
                f"{source}: '{path[:80]}' is of class '{name[:80]}', which is unknown: fetch the list again"
            )
        pictures.append(picture_file(folder / path))
        labels.append(numbers[name])
    spaced = [" ".join(name.replace("_", " ").split()) for name in classes]
    return ImageSet(pictures, np.array(labels, dtype=np.int64), spaced, torchvision_names=list(classes))
