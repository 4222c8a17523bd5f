"""Layouts of any image set: a folder per class, and CLIP_benchmark's shards."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from components.core.pictures.folder import picture_names
from components.core.pictures.rgb import open_picture
from components.core.system.errors import InputError
from components.data.test_sets.files import LazyPicture, TestSetFiles, picture_file
from components.data.test_sets.readers.difference_sets import lines
from research.image_sets.image_set import (
    ImageSet,
    ImageSetFacts,
    Layout,
    first_existing,
    imagenet_folders,
    whole_number,
)

if TYPE_CHECKING:
    from components.core.pictures.shard_reader import RawSample

_IN_SHARDS = ("webp", "png", "jpg", "jpeg")
_COUNT, _CLASS = "nshards.txt", "cls"


def _find_folders(folder: Path, facts: ImageSetFacts, split: str) -> Path | None:
    tests = [path for path in facts.folders if (folder / path).is_dir()]
    trains = [path.replace("test", "train") for path in facts.folders if "test" in path]
    return first_existing(folder, *(trains if split == "train" else tests))


def _read_folders(_files: TestSetFiles, path: Path, facts: ImageSetFacts, _split: str) -> ImageSet:
    """A folder per class (torchvision's ImageFolder): `test/<class>/<image>`, classes in the order of their names."""
    folders = _class_folders(path, facts)
    images = [sorted(path / name / file for file in picture_names(path / name)) for name in folders]
    for name, files in zip(folders, images, strict=True):
        if not files:
            raise InputError(f"{path / name} holds no images: fetch the set again")
    labels = np.repeat(np.arange(len(folders), dtype=np.int64), [len(files) for files in images])
    pictures = [picture_file(file) for files in images for file in files]
    return ImageSet(pictures, labels, [name.replace("_", " ") for name in folders], torchvision_names=folders)


def _class_folders(path: Path, facts: ImageSetFacts) -> list[str]:
    """The folders below `path` in the order of the classes.

    One folder too many or too few would silently shift every later label. ImageNet-V2's folders are sorted as numbers.
    """
    names = sorted(one.name for one in path.iterdir() if one.is_dir() and not one.name.startswith((".", "__")))
    if not names:
        raise InputError(f"{path} holds no class folders: sort its images into {facts.classes} folders, one per class")
    known = facts.class_folders
    wanted = list(imagenet_folders(known) if isinstance(known, str) else known or names)
    odd = sorted(set(wanted) ^ set(names))
    if odd:
        where = "is missing" if odd[0] in wanted else "is not one of its classes"
        raise InputError(f"{path}: folder '{odd[0]}' {where} ({len(odd)} such): {facts.title} has {facts.classes}")
    if len(names) != facts.classes:
        raise InputError(
            f"{path} has {len(names)} class folders, but {facts.title} has {facts.classes} classes: "
            "remove other folders, or fetch the set again"
        )
    return wanted


def _find_shards(folder: Path, _facts: ImageSetFacts, split: str) -> Path | None:
    path = folder / split
    return path if (path / _COUNT).is_file() or (path / "0.tar").is_file() else None


def _read_shards(files: TestSetFiles, path: Path, facts: ImageSetFacts, _split: str) -> ImageSet:
    """Shards as CLIP_benchmark publishes them (webdataset_builder.py): images, and class numbers in `.cls`.

    The strict reader checks each shard once; later, pictures are read directly from their offsets.
    """
    # These import torch and boto3, which a list of benchmarks does not need.
    from components.core.pictures.shard_files import ShardFiles
    from components.core.pictures.shard_reader import ShardReader

    pictures: list[LazyPicture] = []
    labels: list[int] = []
    bad: list[str] = []
    for shard in _shards(path):
        for sample in ShardReader(ShardFiles(), (*_IN_SHARDS, _CLASS), {}).read(str(shard)):
            ending, label, why = _checked(sample, facts.classes)
            if why:
                bad.append(f"{sample.name} ({why})")
                continue
            pictures.append(_picture(shard, sample, ending))
            labels.append(label)
    if bad:
        files.deviates(f"{path.name}/: {len(bad)} samples cannot be used, first {bad[0]}")
    return ImageSet(pictures, np.array(labels, dtype=np.int64))


def _shards(path: Path) -> Iterator[Path]:
    count = (lines(path / _COUNT) or [""])[0]
    for number in range(whole_number(path / _COUNT, count)):
        shard = path / f"{number}.tar"
        if not shard.is_file():
            raise InputError(f"{shard} is missing, {_COUNT} lists {count} shards: fetch it")
        yield shard


def _checked(sample: RawSample, classes: int) -> tuple[str, int, str]:
    """Suffix of the image, class, and the fault of the sample (empty if it can be used)."""
    if sample.fault is not None:
        return "", 0, str(sample.fault)
    endings = [ending for ending in _IN_SHARDS if isinstance(sample.members.get(ending), bytes)]
    label = sample.members.get(_CLASS)
    if len(endings) != 1:
        return "", 0, f"{len(endings)} images"
    if not isinstance(label, bytes):
        return "", 0, "no class" if label is None else str(label)
    text = label.strip()
    if not text.isdigit() or len(text) > 9 or int(text) >= classes:
        return "", 0, f"class is not 0 to {classes - 1}"
    return endings[0], int(text), ""


def _picture(shard: Path, sample: RawSample, ending: str) -> LazyPicture:
    """A sample's picture, which is read from its place in the shard."""
    from components.core.pictures.shard_reader import sound

    status, place = shard.stat(), (sample.positions[ending], len(sound(sample.members[ending])))
    stamp = f"{shard} {status.st_size} {status.st_mtime_ns} {' '.join(map(str, place))}"
    read = partial(_part, shard, *place)
    return LazyPicture(f"{shard.name}/{sample.key}", stamp, lambda: open_picture(read()), read)


def _part(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)


IMAGE_FOLDER = Layout("a folder per class ({split}/<class>/<image>)", _find_folders, _read_folders)
WEBDATASET = Layout(
    "shards of CLIP_benchmark ({split}/0.tar and so on, {split}/nshards.txt, classnames.txt)",
    _find_shards,
    _read_shards,
)
