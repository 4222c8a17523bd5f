"""A folder per class (torchvision's ImageFolder): `test/<class>/<image>`, classes in the order of their names.

One folder too many or too few would shift every later label without a word, so there must be exactly as many as the
set has classes and, where their names are known, exactly those. ImageNet-V2's folders are numbers and count as such:
in alphabetical order 10 would come before 2.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from components.benchmarks.encoding.picture_source import picture_file
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets import imagenet
from components.benchmarks.image_sets.facts import ImageSetFacts
from components.benchmarks.image_sets.image_set import ImageSet, Layout, first_existing
from components.core.errors import InputError

_ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".gif"})


def _find(folder: Path, facts: ImageSetFacts, split: str) -> Path | None:
    tests = [path for path in facts.folders if (folder / path).is_dir()]
    trains = [path.replace("test", "train") for path in facts.folders if "test" in path]
    return first_existing(folder, *(trains if split == "train" else tests))


def _read(_context: PublishedContext, path: Path, facts: ImageSetFacts, _split: str) -> ImageSet:
    folders = _class_folders(path, facts)
    files = [sorted(one for one in (path / name).rglob("*") if one.suffix.lower() in _ENDINGS) for name in folders]
    for name, some in zip(folders, files, strict=True):
        if not some:
            raise InputError(f"{path / name} holds no images: fetch the set again")
    labels = np.repeat(np.arange(len(folders), dtype=np.int64), [len(some) for some in files])
    pictures = [picture_file(file) for some in files for file in some]
    return ImageSet(pictures, labels, [name.replace("_", " ") for name in folders], torchvision_names=folders)


def _class_folders(path: Path, facts: ImageSetFacts) -> list[str]:
    found = sorted(one.name for one in path.iterdir() if one.is_dir() and not one.name.startswith((".", "__")))
    if not found:
        raise InputError(f"{path} holds no class folders: sort its images into {facts.classes} folders, one per class")
    known = facts.class_folders
    wanted = list(imagenet.class_folders(known) if isinstance(known, str) else known or found)
    odd = sorted(set(wanted) ^ set(found))
    if odd:
        where = "is missing" if odd[0] in wanted else "is none of its classes"
        raise InputError(f"{path}: folder '{odd[0]}' {where} ({len(odd)} such): {facts.title} has {facts.classes}")
    if len(found) != facts.classes:
        raise InputError(
            f"{path} has {len(found)} class folders, but {facts.title} has {facts.classes} classes: "
            "remove what is no class, or fetch the set again"
        )
    return wanted


LAYOUT = Layout("a folder per class ({split}/<class>/<image>)", _find, _read)
