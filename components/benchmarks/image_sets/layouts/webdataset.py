"""Shards as CLIP_benchmark publishes them (clip_benchmark/webdataset_builder.py).

`test/0.tar` and so on, each sample an image (`s0000000.webp`, `.png` or `.jpg`) and its class number (`s0000000.cls`);
`test/nshards.txt` holds how many shards there are. `classnames.txt` and `zeroshot_classification_templates.txt` lie
beside the splits.

Shards are read once from end to end with nothing in them trusted; pictures are then opened where they lie in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from components.benchmarks.encoding.picture_source import Picture
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.facts import ImageSetFacts
from components.benchmarks.image_sets.image_set import ImageSet, Layout
from components.benchmarks.image_sets.tar_pictures import tar_pictures
from components.benchmarks.image_sets.text_files import lines, whole_number
from components.core.errors import InputError
from components.training.shards.files import ShardFiles
from components.training.shards.reader import RawSample, ShardReader
from components.training.shards.tar import Fault

IMAGES = ("webp", "png", "jpg", "jpeg")
_COUNT = "nshards.txt"
_CLASS = "cls"
_LONGEST = 9


def _find(folder: Path, _facts: ImageSetFacts, split: str) -> Path | None:
    path = folder / split
    return path if (path / _COUNT).is_file() or (path / "0.tar").is_file() else None


def _read(context: PublishedContext, path: Path, facts: ImageSetFacts, _split: str) -> ImageSet:
    pictures: list[Picture] = []
    labels: list[int] = []
    bad: list[str] = []
    for shard in _shards(path):
        places = None
        for sample in ShardReader(ShardFiles(), (*IMAGES, _CLASS), {}).read(str(shard)):
            ending, label, why = _checked(sample, facts.classes)
            if why:
                bad.append(f"{sample.name} ({why})")
                continue
            # The reader has seen the archive to be sound up to here.
            places = places or tar_pictures(shard)
            pictures.append(places(sample.key, ending))
            labels.append(label)
    if bad:
        context.amiss(f"{path.name}/: {len(bad)} samples cannot be used, first {bad[0]}")
    return ImageSet(pictures, np.array(labels, dtype=np.int64))


def _shards(path: Path) -> Iterator[Path]:
    count = (lines(path / _COUNT) or [""])[0]
    for number in range(whole_number(path / _COUNT, count)):
        shard = path / f"{number}.tar"
        if not shard.is_file():
            raise InputError(f"{shard} is missing, {_COUNT} says there are {count} shards: fetch it")
        yield shard


def _checked(sample: RawSample, classes: int) -> tuple[str, int, str]:
    """Ending of the image, class, and why the sample cannot be used (empty when it can)."""
    if sample.fault is not None:
        return "", 0, str(sample.fault)
    endings = [ending for ending in IMAGES if isinstance(sample.members.get(ending), bytes)]
    label = sample.members.get(_CLASS)
    if len(endings) != 1:
        return "", 0, f"{len(endings)} images"
    if not isinstance(label, bytes):
        return "", 0, str(label) if isinstance(label, Fault) else "no class"
    text = label.strip()
    if not text.isdigit() or len(text) > _LONGEST or int(text) >= classes:
        return "", 0, f"class is not 0 to {classes - 1}"
    return endings[0], int(text), ""


LAYOUT = Layout("shards of CLIP_benchmark ({split}/0.tar and so on, {split}/nshards.txt, classnames.txt)", _find, _read)
