"""Shards of img2dataset, on disk or in S3: `<key>.jpg`, png or webp beside `<key>.txt`, or `caption` in `<key>.json`.

A sample is of the `split` that its `<key>.json` says, or else of that which its shard's name, or the name of the
shard's folder, has in it as a word. A sample that is cut, hostile or without caption is left out and counted; nothing
is written to disk while a shard is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from more_itertools import longest_common_prefix

from components.core.errors import InputError
from components.core.settings import Prepare
from components.core.shards.listing import ShardFiles, ShardList, find_shards, is_remote
from components.core.shards.reader import Fault, RawSample, ShardReader, sound
from components.data.checked_pictures import Part, Sample
from components.data.listing import image_folder
from components.data.source import Unusable, UnusableError
from components.data.splits import split_named, split_said
from components.data.streamed_images import TRAIN, Splits, streamed_source

IMAGES = ("jpg", "jpeg", "png", "webp")
"""Endings of pictures in shards."""
_USUAL = 10_000
"""Samples of a shard by img2dataset's default."""
_HOW = "put img2dataset's shards into it, such as 00000.tar"


def read_splits(settings: Prepare) -> Splits:
    """The shards by split.

    Raises:
        InputError: no shards are named or there, or none to train on.
    """
    given = _given(settings)
    stamps = _stamps(given.urls)
    found: dict[str, list[Part]] = {}
    # Names of folders that all shards are in, such as the data set's own, say nothing of one shard.
    shared = "/".join(longest_common_prefix(url.split("/")[:-1] for url in given.urls))
    root = str(settings.folder) if settings.shards is None else shared
    for url in given.urls:
        size, split = given.sizes.get(url), split_named(url.removeprefix(root))
        part = Part(f"{stamps[url]} {size} {split}", partial(_samples, url, size, split), size or _USUAL)
        found.setdefault(split or TRAIN, []).append(part)
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


def _samples(url: str, size: int | None, split: str) -> Iterator[Sample | Unusable]:
    sizes = {} if size is None else {url: size}
    for raw in ShardReader(ShardFiles(), {*IMAGES, "txt", "json"}, sizes, _USUAL).read(url):
        try:
            yield _sample(raw, split)
        except (Fault, UnusableError) as fault:
            yield Unusable(f"{raw.name} cannot be used ({fault})", raw.lost)


def _sample(raw: RawSample, split: str) -> Sample:
    if raw.fault is not None:
        raise raw.fault
    ending = next((ending for ending in IMAGES if ending in raw.members), "")
    image, caption = sound(raw.members.get(ending, b"")), raw.text("txt") or raw.text("json", "caption")
    if not image or not caption:
        raise Fault("no caption" if image else "no image")
    split = split_said("its JSON", raw.text("json", "split")) or split
    return Sample(raw.name, image, raw.shard, raw.positions[ending], (caption,), raw.name, split)


def find(folder: Path) -> str | None:
    """See `Source`: a shard in the folder or in one below it."""
    shards = shards_in(folder)
    return str(Path(shards[0]).relative_to(folder)) if shards else None


SOURCE = streamed_source(read_splits, find, "*.tar", _HOW)
