"""Food-101: `meta/test.txt` lists `apple_pie/1011328`, `meta/classes.txt` the classes; pictures are in `images/`."""

from __future__ import annotations

from pathlib import Path

from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.facts import ImageSetFacts
from components.benchmarks.image_sets.image_set import ImageSet, Layout, first_existing
from components.benchmarks.image_sets.listed import listed
from components.benchmarks.image_sets.text_files import lines


def _find(folder: Path, _facts: ImageSetFacts, _split: str) -> Path | None:
    return folder if (folder / "meta").is_dir() else first_existing(folder, "food-101")


def _read(_context: PublishedContext, path: Path, _facts: ImageSetFacts, split: str) -> ImageSet:
    names = lines(path / "meta" / "classes.txt")
    source = path / "meta" / f"{split}.txt"
    rows = [(f"{one}.jpg", one.rpartition("/")[0]) for one in lines(source)]
    return listed(source, path / "images", rows, names)


LAYOUT = Layout("the authors' files (meta/classes.txt, meta/{split}.txt and images/)", _find, _read)
