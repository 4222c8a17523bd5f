"""SUN397: `ClassName.txt` lists `/a/abbey`; `Testing_01.txt` of Partitions.zip lists `/a/abbey/sun_x.jpg`.

The first of the ten official partitions, 50 images per class for training and testing (19,850 each), is the one of
CLIP's paper (appendix A.1). CLIP_benchmark's shards hold all 108,754 images. A class is called by its path without
the letter: "/c/church/indoor" is "church indoor".

Split `whole` is all images below the classes' folders, sorted by path.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.facts import ImageSetFacts
from components.benchmarks.image_sets.image_set import ImageSet, Layout, first_existing
from components.benchmarks.image_sets.listed import listed
from components.benchmarks.image_sets.text_files import lines

_FILES = {"test": "Testing_01.txt", "train": "Training_01.txt"}
_LETTER = 2
"""Characters of "a/" before a class's name."""


def _find(folder: Path, _facts: ImageSetFacts, _split: str) -> Path | None:
    return folder if (folder / "ClassName.txt").is_file() else first_existing(folder, "SUN397")


def _read(context: PublishedContext, path: Path, _facts: ImageSetFacts, split: str) -> ImageSet:
    classes = [line.strip("/") for line in lines(path / "ClassName.txt")]
    if split == "whole":
        source = path
        images = sorted(one.relative_to(path).as_posix() for one in path.rglob("sun_*.jpg"))
    else:
        source = first_existing(path, _FILES[split], f"Partitions/{_FILES[split]}") or context.folder / _FILES[split]
        images = [line.strip("/") for line in lines(source)]
    rows = [(image, image.rpartition("/")[0][_LETTER:]) for image in images]
    found = listed(source, path, rows, [name[_LETTER:] for name in classes])
    return replace(found, class_names=[name.replace("/", " ") for name in found.class_names or ()])


LAYOUT = Layout("the authors' files (SUN397/ClassName.txt, Testing_01.txt, Training_01.txt and images)", _find, _read)
