"""Describable Textures: `labels/test1.txt` lists `banded/banded_0002.jpg`; pictures are in `images/`.

The first of the ten splits; training is its `train1` and `val1` together, as in CLIP's paper (appendix A.1).
"""

from __future__ import annotations

from pathlib import Path

from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.facts import ImageSetFacts
from components.benchmarks.image_sets.image_set import ImageSet, Layout, first_existing
from components.benchmarks.image_sets.listed import listed
from components.benchmarks.image_sets.text_files import lines

_FILES = {"test": ("test1.txt",), "train": ("train1.txt", "val1.txt")}


def _find(folder: Path, _facts: ImageSetFacts, _split: str) -> Path | None:
    return folder if (folder / "labels").is_dir() else first_existing(folder, "dtd")


def _read(_context: PublishedContext, path: Path, _facts: ImageSetFacts, split: str) -> ImageSet:
    sources = [path / "labels" / name for name in _FILES[split]]
    rows = [(image, image.partition("/")[0]) for source in sources for image in lines(source)]
    return listed(sources[0], path / "images", rows, sorted({name for _, name in rows}))


LAYOUT = Layout("the authors' files (labels/test1.txt, labels/train1.txt, labels/val1.txt and images/)", _find, _read)
