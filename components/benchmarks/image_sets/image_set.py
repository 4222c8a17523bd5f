"""A split of an image set, what a layout is, and what layouts read: text files and MATLAB files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from components.benchmarks.encoding.pictures import Picture
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.facts import ImageSetFacts
from components.core.errors import InputError
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

    def of_rows(self, rows: Indices) -> ImageSet:
        """The set with these of its pictures alone, in this order."""
        return replace(self, pictures=[self.pictures[row] for row in rows], labels=self.labels[rows])


Find = Callable[[Path, ImageSetFacts, str], Path | None]
"""Where a split lies below the set's folder; None where the layout is not there."""


@dataclass(frozen=True)
class Layout:
    """A way in which image sets are published.

    Attributes:
        told: what lies where, for a message that says what was looked for; `{split}` stands for the split.
        find: finds a split.
        read: reads the split that `find` found; raises `InputError` where a file is missing or damaged.
    """

    told: str
    find: Find
    read: Callable[[PublishedContext, Path, ImageSetFacts, str], ImageSet]


def first_existing(folder: Path, *paths: str) -> Path | None:
    """The first of `paths` below `folder` that exists."""
    return next((folder / path for path in paths if (folder / path).exists()), None)


def unpacked(inside: str, archive: str) -> Find:
    """Finds the set's folder where it holds the file or folder `inside`, and else the folder `archive` in it."""
    return lambda folder, _facts, _split: folder if (folder / inside).exists() else first_existing(folder, archive)


def lines(path: Path) -> list[str]:
    """The lines of a file without surrounding space; empty ones and comments (#) are left out.

    Raises:
        InputError: the file is missing or no UTF-8 text.
    """
    try:
        found = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except FileNotFoundError:
        raise InputError(f"{path} is missing: put it there as its authors publish it") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}): fetch it again") from None
    return [line for line in found if line and not line.startswith("#")]


def table(path: Path, columns: int) -> list[list[str]]:
    """The rows of a file of `columns` columns, the last of which may hold spaces.

    Raises:
        InputError: the file is missing, or a row has fewer columns.
    """
    rows = [line.split(None, columns - 1) for line in lines(path)]
    for number, row in enumerate(rows):
        if len(row) != columns:
            raise InputError(f"{path}: row {number} has {len(row)} columns instead of {columns}: fetch the file again")
    return rows


def whole_number(path: Path, text: str) -> int:
    """`text` of `path` as a number.

    Raises:
        InputError: it is none.
    """
    if not text.isdecimal() or len(text) > 9:
        raise InputError(f"{path}: '{text[:40]}' is no number: fetch the file again")
    return int(text)


def mat_arrays(path: Path, *names: str) -> list[Any]:
    """The arrays called `names` of a MATLAB file; records become objects whose attributes are their fields.

    Raises:
        InputError: the file is missing, damaged, or lacks an array.
    """
    from scipy.io import loadmat

    if not path.is_file():
        raise InputError(f"{path} is missing: put it there as its authors publish it")
    try:
        found = loadmat(path, variable_names=names, squeeze_me=True, struct_as_record=False)
    except Exception as error:
        # scipy's reader raises whatever a damaged byte leads to.
        raise InputError(f"{path} is no MATLAB file ({str(error)[:80]}): fetch it again") from None
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(f"{path} lacks the array '{missing[0]}': fetch it again")
    return [found[name] for name in names]
