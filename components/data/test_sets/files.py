"""Files of a published test set: required files, published counts, rows, pictures, and released random splits."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from components.core.compute.metrics import Indices
from components.core.pictures.rgb import open_picture
from components.core.system.errors import InputError
from components.core.tables.folders import RequiredFile

_NAMED = 3


@dataclass(frozen=True)
class Tested:
    """The texts and pictures of a test set, which training must not contain.

    Attributes:
        texts: sentences, including false ones; prompts made of class names are not included.
        files: picture files, whether or not they exist.
        names: folder name that the publisher of the pictures uses, if the benchmark's folder is named differently.
    """

    texts: Sequence[str] = ()
    files: Sequence[Path] = ()
    pictures: Sequence[LazyPicture] = ()
    names: str = ""


@dataclass
class TestSetFiles:
    """The folder of one test set, and deviations from the published data.

    Attributes:
        allow_partial: accept fewer or other rows than published, and list them in `notes`.
        notes: deviations; a result with notes is not comparable with published figures.
    """

    __test__ = False

    folder: Path
    allow_partial: bool = False
    notes: list[str] = field(default_factory=list)

    def expect(self, what: str, count: int, published: int) -> None:
        """Compare a count with the published one."""
        if count != published:
            self.deviates(f"{what}: {count:,} found, {published:,} published")

    def deviates(self, what: str) -> None:
        """Note a deviation, such as "images/: 3 of 5,000 cannot be decoded, first 000012.jpg"."""
        if not self.allow_partial:
            raise InputError(
                f"{self.folder}: {what}: complete the data, or add --allow-partial to score the available part"
            )
        self.notes.append(what)

    def read_json(self, path: str) -> Any:
        try:
            return json.loads((self.folder / path).read_text("utf-8"))
        except FileNotFoundError:
            raise InputError(f"{self.folder / path} is missing: fetch it") from None
        except (json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
            raise InputError(f"{self.folder / path} is damaged ({error}): fetch it again") from None

    def read_lists(self, path: str, *keys: str) -> list[list[Any]]:
        """The lists under `keys` of a JSON object."""
        content = self.read_json(path)
        if not isinstance(content, dict):
            raise InputError(f"{self.folder / path} holds no JSON object: fetch it again")
        for key in keys:
            if not isinstance(content.get(key), list):
                raise InputError(f"{self.folder / path} has no list '{key}': fetch it again")
        return [content[key] for key in keys]

    def read_rows(self, path: str, columns: Mapping[str, type]) -> list[dict[str, Any]]:
        """The rows of a JSON list, or of a JSON object whose values are rows, in the file's order."""
        content = self.read_json(path)
        rows = list(content.values()) if isinstance(content, dict) else content
        if not isinstance(rows, list):
            raise InputError(f"{self.folder / path} holds no list of rows: fetch it again")
        return self.complete_rows(path, rows, columns)

    def read_csv(self, path: str, columns: Mapping[str, type]) -> list[dict[str, Any]]:
        """The rows of a comma-separated file whose first line names the columns."""
        try:
            with (self.folder / path).open(encoding="utf-8", newline="") as stream:
                rows = list(csv.DictReader(stream))
        except (csv.Error, UnicodeDecodeError, OSError) as error:
            raise InputError(f"{self.folder / path} is damaged ({error}): fetch it again") from None
        return self.complete_rows(path, rows, columns)

    def complete_rows(self, path: str, rows: Iterable[Any], columns: Mapping[str, type]) -> list[dict[str, Any]]:
        """Those of `rows` that have every column in its type. Others are counted in `notes` and skipped."""
        good, bad = [], []
        for number, row in enumerate(rows):
            if isinstance(row, dict) and all(isinstance(row.get(name), kind) for name, kind in columns.items()):
                good.append(row)
            else:
                bad.append(number)
        if bad:
            self.deviates(f"{path}: {len(bad)} rows lack {' or '.join(columns)} (row {some_of(bad)}, counted from 0)")
        if not good:
            raise InputError(f"{self.folder / path} has no row that can be scored: fetch it again")
        return good


def some_of(numbers: Sequence[int]) -> str:
    """The first few row numbers, for a message."""
    return ", ".join(map(str, numbers[:_NAMED])) + (", ..." if len(numbers) > _NAMED else "")


@dataclass(frozen=True)
class TestSet:
    """One published test set.

    Attributes:
        folder: below the data folder; several test sets may share one.
    """

    __test__ = False

    name: str
    folder: str
    files: Sequence[RequiredFile]
    read: Callable[[TestSetFiles], Tested]


def drawn(items: int, count: int, seed: int) -> Indices:
    """`count` of `items` numbers without repetition, or all if there are fewer, in the order drawn.

    PC-CLIP's released code uses the same generator, so the draw is the published one.
    """
    import torch

    order = torch.randperm(items, generator=torch.Generator().manual_seed(seed))
    return np.asarray(order[:count].numpy(), dtype=np.int64)


def released_splits(rows: int, seed: int = 42, share: float = 0.1) -> dict[str, Indices]:
    """Shuffled row numbers of SemCLIP's `train`, `val` and `test`: the last share tests, the one before validates.

    The paper names a random tenth; the shuffle, as pandas' `sample` makes it, and its seed are the released code's
    (src/dataset.py). Rows are split, not images, so an image with several rows may be trained on and tested.
    """
    shuffled = np.random.RandomState(seed).permutation(rows).astype(np.int64)
    part = int(rows * share)
    return {
        "train": shuffled[: rows - 2 * part],
        "val": shuffled[rows - 2 * part : rows - part],
        "test": shuffled[rows - part :],
    }


def released_test_rows(rows: int) -> Indices:
    """The `test` rows of `released_splits`."""
    return released_splits(rows)["test"]


Box = tuple[int, ...]
"""Left, top, width and height in pixels."""


@dataclass(frozen=True)
class LazyPicture:
    """A picture that is opened only when its pixels are needed.

    Attributes:
        name: for messages; together with `stamp` it identifies the picture within its benchmark.
        stamp: changes when the picture changes, such as its size and modification time.
        open: opens the picture without decoding its pixels; raises as `components.core.pictures.rgb.open_picture`.
        encoded: reads the published bytes; None if the picture is published as raw pixels.
    """

    name: str
    stamp: str
    open: Callable[[], AbstractContextManager[Image.Image]]
    encoded: Callable[[], bytes] | None = None


def picture_file(path: Path, box: Box | None = None) -> LazyPicture:
    """An image file, or the part of it within `box`."""
    try:
        status = path.stat()
    except OSError:
        raise InputError(f"{path} is missing: the benchmark's annotations name it") from None
    name = path.name if box is None else f"{path.name}[{','.join(map(str, box))}]"

    @contextmanager
    def opened() -> Iterator[Image.Image]:
        left, top, width, height = box or (0, 0, 0, 0)
        with open_picture(path) as image:
            yield image if box is None else image.crop((left, top, left + width, top + height))

    return LazyPicture(name, f"{path} {status.st_size} {status.st_mtime_ns}", opened, path.read_bytes)


def picture_pixels(name: str, pixels: npt.NDArray[Any]) -> LazyPicture:
    """A picture of raw pixels, `[height, width, 3]` or grey `[height, width]`."""
    stamp = hashlib.sha256(pixels.tobytes()).hexdigest()
    return LazyPicture(name, f"{pixels.shape} {stamp}", lambda: Image.fromarray(np.ascontiguousarray(pixels)))
