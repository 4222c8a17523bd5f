"""Shards of img2dataset, on disk or in S3: `<key>.jpg`, png or webp with `<key>.txt`, or `caption` in `<key>.json`.

The split of a sample is that of its `<key>.json`, or a word in the name of its shard or of the shard's folder. A sample
that is truncated, malicious or without caption is left out and counted. Reading a shard writes nothing to disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from more_itertools import longest_common_prefix

from components.core.pictures.folder import files_in
from components.core.pictures.shard_files import ShardFiles, find_shards, is_remote
from components.core.pictures.shard_reader import Fault, RawSample, ShardReader, sound
from components.core.settings import Prepare
from components.core.system.errors import InputError
from components.data.listed_images import image_folder
from components.data.row_fields import RowFields
from components.data.source import EmptyRowError, PictureChunk, Sample, Unusable, UnusableError, split_in_path
from components.data.streamed_images import TRAIN, Splits, streamed_source

_IMAGES = ("jpg", "jpeg", "png", "webp")
"""Endings of pictures in shards."""
_USUAL = 10_000
"""Samples of a shard by img2dataset's default."""
_HOW = "put img2dataset's shards into it, such as 00000.tar"


def read_splits(settings: Prepare) -> Splits:
    """The shards by split."""
    fields = RowFields.of(settings)
    given = find_shards(settings.shards or shards_in(image_folder(settings)), ShardFiles())
    stamps = _stamps(given.urls)
    splits: dict[str, list[PictureChunk]] = {}
    # Folders that contain all shards, such as the data set's own, do not show the split of one shard.
    shared = "/".join(longest_common_prefix(url.split("/")[:-1] for url in given.urls))
    root = str(settings.folder) if settings.shards is None else shared
    for url in given.urls:
        size, split = given.sizes.get(url), split_in_path(url.removeprefix(root))
        stamp = f"{stamps[url]} {size} {split} {fields.stamp}"
        chunk = PictureChunk(stamp, partial(read_shard, url, size, split, fields), size or _USUAL)
        splits.setdefault(split or TRAIN, []).append(chunk)
    if TRAIN not in splits:
        raise InputError(f"{given.urls[0]} and all other shards are of a test or validation split: {_HOW}")
    return splits


def _stamps(urls: Sequence[str]) -> dict[str, str]:
    """A text per shard that changes with it: an object's ETag, or a file's size and change time."""
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
    """The shards in a folder and its direct subfolders."""
    return [str(path) for path in files_in(folder, "*.tar", "*/*.tar")]


def read_shard(url: str, size: int | None, split: str, fields: RowFields) -> Iterator[Sample | Unusable]:
    """The samples of a shard; `split` is that of samples that do not name their own."""
    sizes = {} if size is None else {url: size}
    endings = _IMAGES if fields.image is None else (fields.image,)
    for raw in ShardReader(ShardFiles(), {*endings, "txt", "json"}, sizes, _USUAL).read(url):
        try:
            yield _sample(raw, endings, split, fields)
        except (Fault, UnusableError) as fault:
            lost = 0 if isinstance(fault, EmptyRowError) else raw.lost
            yield Unusable(f"{raw.name} cannot be used ({fault})", lost)


def _sample(raw: RawSample, endings: Sequence[str], split: str, fields: RowFields) -> Sample:
    if raw.fault is not None:
        raise raw.fault
    ending = next((ending for ending in endings if ending in raw.members), "")
    if not (image := sound(raw.members.get(ending, b""))):
        raise Fault(f"no image{f': {raw.hint}' if raw.hint else ''}")
    texts = fields.read("it", raw.fields(), split)
    where = raw.name, raw.shard, raw.positions[ending]
    return Sample.of(image, *where, texts.captions, raw.name, texts.split, texts.item)


def find(folder: Path) -> str | None:
    """See `Source`: a shard in the folder or a direct subfolder."""
    shards = shards_in(folder)
    return str(Path(shards[0]).relative_to(folder)) if shards else None


SOURCE = streamed_source(read_splits, find, "*.tar", _HOW)
