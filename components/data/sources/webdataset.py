"""Shards of img2dataset, on disk or in S3: `<key>.jpg`, png or webp beside `<key>.txt`, or `caption` in `<key>.json`.

A shard whose name, or whose folder's name, has `train`, `val` or `test` in it as a word is of that split; all other
shards train. A sample that is cut, hostile or without caption is left out and counted; nothing is written to disk
while a shard is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from components.core.errors import InputError
from components.core.files import image_id
from components.core.settings import Prepare
from components.core.shards.listing import ShardFiles, ShardList, find_shards, is_remote
from components.core.shards.reader import Fault, RawSample, ShardReader, sound
from components.data.checked_pictures import Part, Sample
from components.data.listing import image_folder, split_named
from components.data.source import Described, Unusable
from components.data.streamed_images import TRAIN, Splits, streamed_source

IMAGES = ("jpg", "jpeg", "png", "webp")
"""Endings of pictures in shards."""
_USUAL = 10_000
"""Samples of a shard by img2dataset's default."""
_FIRST = 8
"""Images of each shard that `cliptune import` opens."""
_HOW = "put img2dataset's shards into it, such as 00000.tar"


def read_splits(settings: Prepare) -> Splits:
    """The shards by split.

    Raises:
        InputError: no shards are named or there, or none to train on.
    """
    given = _given(settings)
    stamps = _stamps(given.urls)
    found: dict[str, list[Part]] = {}
    for url in given.urls:
        size = given.sizes.get(url, 0)
        part = Part(stamps[url], partial(_samples, url, {url: size} if size else {}), size or _USUAL)
        found.setdefault(split_named(url), []).append(part)
    if TRAIN not in found:
        raise InputError(f"{given.urls[0]} and the other shards are all of a split to test with: {_HOW}")
    return found


def _given(settings: Prepare) -> ShardList:
    return find_shards(settings.shards or shards_in(image_folder(settings)), ShardFiles())


def _stamps(urls: Sequence[str]) -> dict[str, str]:
    """What changes when a shard does: an object's ETag, or a file's size and the time of its last change."""
    files, etags = ShardFiles(), dict[str, str]()
    for folder in sorted({url.rpartition("/")[0] for url in urls if is_remote(url)}):
        etags |= files.etags(f"{folder}/")
    stamps = {}
    for url in urls:
        if is_remote(url):
            stamps[url] = f"{url} {etags.get(url)}"
        else:
            stat = Path(url).stat()
            stamps[url] = f"{url} {stat.st_size} {stat.st_ctime_ns}"
    return stamps


def shards_in(folder: Path) -> list[str]:
    """The shards in a folder, and in those directly below it."""
    return sorted(str(path) for pattern in ("*.tar", "*/*.tar") for path in folder.glob(pattern))


def _samples(url: str, sizes: Mapping[str, int]) -> Iterator[Sample | Unusable]:
    for raw in ShardReader(ShardFiles(), {*IMAGES, "txt", "json"}, sizes).read(url):
        try:
            yield _sample(raw)
        except Fault as fault:
            yield Unusable(f"{raw.name} cannot be used ({fault})", raw.lost)


def _sample(raw: RawSample) -> Sample:
    if raw.fault is not None:
        raise raw.fault
    ending = next((ending for ending in IMAGES if ending in raw.members), "")
    image, caption = sound(raw.members.get(ending, b"")), raw.text("txt") or raw.text("json", "caption")
    if not image or not caption:
        raise Fault("no caption" if image else "no image")
    return Sample(raw.name, image, raw.shard, raw.positions[ending], (caption,), raw.name)


def describe(settings: Prepare) -> Described:
    """What the shards hold: all of them are read once, and the first images of each may be opened.

    Raises:
        InputError: as `read_splits`.
    """
    images: dict[str, int] = {}
    captions: dict[str, int] = {}
    pictures: list[tuple[str, Callable[[], bytes]]] = []
    missing, told = 0, Counter[int]()
    for split, parts in read_splits(settings).items():
        for part in parts:
            opened = 0
            for one in part.read():
                if not isinstance(one, Sample):
                    missing += one.images if isinstance(one, Unusable) else 0
                    continue
                captions[split] = captions.get(split, 0) + 1
                known = int(image_id(one.raw), 16)
                told[known] += 1
                if told[known] > 1:
                    continue
                images[split] = images.get(split, 0) + 1
                if (opened := opened + 1) <= _FIRST:
                    pictures.append((one.place, partial(bytes, one.raw)))
    return Described(images, captions, max(told.values(), default=0), pictures, missing)


def find(folder: Path) -> str | None:
    """See `Source`: a shard in the folder or in one below it."""
    shards = shards_in(folder)
    return str(Path(shards[0]).relative_to(folder)) if shards else None


SOURCE = streamed_source(read_splits, describe, find, "*.tar", _HOW)
