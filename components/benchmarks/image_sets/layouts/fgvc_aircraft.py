"""FGVC Aircraft: `data/images_variant_test.txt` has rows of image and variant, `data/variants.txt` the classes.

Training is `trainval`, as in CLIP's paper (appendix A.1).
"""

from __future__ import annotations

from pathlib import Path

from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.facts import ImageSetFacts
from components.benchmarks.image_sets.image_set import ImageSet, Layout, first_existing
from components.benchmarks.image_sets.listed import listed
from components.benchmarks.image_sets.text_files import lines, table

_FILES = {"test": "images_variant_test.txt", "train": "images_variant_trainval.txt"}


def _find(folder: Path, _facts: ImageSetFacts, _split: str) -> Path | None:
    found = first_existing(folder, "variants.txt", "data/variants.txt", "fgvc-aircraft-2013b/data/variants.txt")
    return None if found is None else found.parent


def _read(_context: PublishedContext, path: Path, _facts: ImageSetFacts, split: str) -> ImageSet:
    source = path / _FILES[split]
    rows = [(f"{image}.jpg", name) for image, name in table(source, 2)]
    return listed(source, path / "images", rows, lines(path / "variants.txt"))


LAYOUT = Layout("the authors' files (data/variants.txt, data/images_variant_test.txt and data/images/)", _find, _read)
