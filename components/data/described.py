"""The content of a folder according to its files, before any picture is decoded."""

from __future__ import annotations

import filecmp
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from components.core.system.progress import track
from components.data.source import HELD_OUT_FIRST, Unusable

_TAIL = 64
"""Bytes at the end of a file; only files of one size that share them are compared whole."""
_QUICK = 1_000
"""Files that are compared without a progress bar."""
_TEXTS = 50_000
"""Distinct captions that are kept as a sample; of each all pictures are counted."""


@dataclass(frozen=True)
class Described:
    """The usable rows of a folder, and the others.

    Attributes:
        groups: (split, product or empty, distinct captions of an image) -> number of such images; images without a
            published split are under `train`.
        texts: a sample of the captions -> number of images that have each.
        pictures: place and reader of the bytes of images that may be opened.
        copies: number of pictures whose bytes are those of another file.
    """

    groups: Mapping[tuple[str, str, int], int]
    texts: Mapping[str, int]
    pictures: Sequence[tuple[str, Callable[[], bytes]]]
    unusable: Sequence[Unusable] = ()
    paraphrases: int = 0
    copies: int = 0

    @property
    def images(self) -> Mapping[str, int]:
        """Number of images by split."""
        counts = Counter[str]()
        for (split, _, _), images in self.groups.items():
            counts[split] += images
        return counts

    @property
    def captions(self) -> Mapping[str, int]:
        """Number of distinct pairs of image and caption by split."""
        counts = Counter[str]()
        for (split, _, captions), images in self.groups.items():
            counts[split] += captions * images
        return counts


class CaptionTally:
    """Counts images and their distinct captions while rows are read; `texts` is that of `Described`."""

    def __init__(self) -> None:
        self._images: dict[Hashable, tuple[str, str, int]] = {}
        self._pairs: set[int] = set()
        self.texts: dict[str, int] = {}
        self._last = 1 << 32

    def add(self, image: Hashable, split: str, item: str, captions: Iterable[str]) -> None:
        """Count the captions of a row's image that it does not have yet."""
        before, named, count = self._images.get(image, ("train", item, 0))
        for caption in captions:
            if (pair := hash((image, caption))) not in self._pairs:
                self._pairs.add(pair)
                count += 1
                self._sample(caption)
        first = min(before, split or "train", key=HELD_OUT_FIRST.index)
        if count:
            self._images[image] = first, named or item, count

    def _sample(self, caption: str) -> None:
        if crc32(caption.encode()) >= self._last:
            return
        self.texts[caption] = self.texts.get(caption, 0) + 1
        if len(self.texts) > 2 * _TEXTS:
            self._last = sorted(crc32(text.encode()) for text in self.texts)[_TEXTS]
            self.texts = {text: n for text, n in self.texts.items() if crc32(text.encode()) < self._last}

    @property
    def groups(self) -> Counter[tuple[str, str, int]]:
        """`Described.groups` of the rows so far."""
        return Counter(self._images.values())


def first_copies(files: Sequence[Path]) -> dict[Path, Path]:
    """Each file -> the first one with the same bytes."""
    found: dict[tuple[int, bytes], list[Path]] = {}
    first: dict[Path, Path] = {}
    for file in track(files, "look for copies", len(files), "picture") if len(files) > _QUICK else files:
        with file.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _TAIL))
            others = found.setdefault((size, stream.read()), [])
        first[file] = next((one for one in others if filecmp.cmp(one, file, shallow=False)), file)
        if first[file] is file:
            others.append(file)
    return first
