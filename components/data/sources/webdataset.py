"""Shards of img2dataset, on disk or in S3: `<key>.jpg`, png or webp beside `<key>.txt`, or `caption` in `<key>.json`.

A shard whose name, or whose folder's name, has `train`, `val` or `test` in it as a word is of that split; all other
shards train. A sample that is cut, hostile or without caption is left out and counted; nothing is written to disk
while a shard is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from components.core.errors import InputError
from components.core.files import image_id
from components.core.settings import Prepare
from components.core.shards.listing import ShardFiles, find_shards
from components.core.shards.reader import Fault, RawSample, ShardReader, sound
from components.data.listing import SPLIT_NAMES, image_folder
from components.data.source import Described, Unusable
from components.data.streamed_images import TRAIN, Sample, Samples, Splits, streamed_source

_IMAGES = ("jpg", "jpeg", "png", "webp")
_SPLIT = re.compile(rf"(?:^|[^a-z])({'|'.join(SPLIT_NAMES)})(?:[^a-z]|$)")
_FIRST = 8
"""Images of each shard that `cliptune import` opens."""
_HOW = "put img2dataset's shards into it, such as 00000.tar"


def read_splits(settings: Prepare) -> Splits:
    """The shards' samples by split.

    Raises:
        InputError: no shards are named or there, or none to train on.
    """
    readers = _by_split(settings)
    return {split: partial(_samples, reader, urls) for split, (reader, urls) in readers.items()}


def _by_split(settings: Prepare) -> dict[str, tuple[ShardReader, list[str]]]:
    files = ShardFiles()
    given = find_shards(settings.shards or _in_folder(image_folder(settings)), files)
    reader = ShardReader(files, {*_IMAGES, "txt", "json"}, given.sizes)
    found: dict[str, list[str]] = {}
    for url in given.urls:
        found.setdefault(_split_of(url), []).append(url)
    if TRAIN not in found:
        raise InputError(f"{given.urls[0]} and the other shards are all of a split to test with: {_HOW}")
    return {split: (reader, urls) for split, urls in found.items()}


def _in_folder(folder: Path) -> list[str]:
    return sorted(str(path) for pattern in ("*.tar", "*/*.tar") for path in folder.glob(pattern))


def _split_of(url: str) -> str:
    """By the shard's name, or else by that of its folder."""
    *_, folder, name = ("", *url.split("/"))
    named = _SPLIT.search(name.lower()) or _SPLIT.search(folder.lower())
    return SPLIT_NAMES[named[1]] if named else TRAIN


def _samples(reader: ShardReader, urls: list[str]) -> Samples:
    for url in urls:
        for raw in reader.read(url):
            try:
                yield _sample(raw)
            except Fault as fault:
                yield Unusable(f"{raw.name} cannot be used ({fault})", raw.lost)


def _sample(raw: RawSample) -> Sample:
    if raw.fault is not None:
        raise raw.fault
    image = next((raw.members[ending] for ending in _IMAGES if ending in raw.members), b"")
    image, caption = sound(image), raw.text("txt") or raw.text("json", "caption")
    if not image or not caption:
        raise Fault("no caption" if image else "no image")
    return Sample(raw.name, image, (caption,), raw.name)


def describe(settings: Prepare) -> Described:
    """What the shards hold: all of them are read once, and the first images of each may be opened.

    Raises:
        InputError: as `read_splits`.
    """
    images: dict[str, int] = {}
    captions: dict[str, int] = {}
    pictures: list[tuple[str, Callable[[], bytes]]] = []
    missing, seen = 0, set[int]()
    for split, (reader, urls) in _by_split(settings).items():
        for url in urls:
            opened = 0
            for one in _samples(reader, [url]):
                if isinstance(one, Unusable):
                    missing += one.images
                    continue
                captions[split] = captions.get(split, 0) + 1
                if (known := int(image_id(one.image), 16)) in seen:
                    continue
                seen.add(known)
                images[split] = images.get(split, 0) + 1
                if (opened := opened + 1) <= _FIRST:
                    pictures.append((one.place, partial(bytes, one.image)))
    return Described(images, captions, 1, pictures, missing)


def find(folder: Path) -> str | None:
    """See `Source`: a shard in the folder or in one below it."""
    shards = _in_folder(folder)
    return str(Path(shards[0]).relative_to(folder)) if shards else None


SOURCE = streamed_source(read_splits, describe, find, "*.tar", _HOW)
