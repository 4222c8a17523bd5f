"""Shards on disk or in S3: expands patterns, folders and lists, and reads numbers of samples."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from braceexpand import braceexpand
from more_itertools import duplicates_everseen

from components.core.pictures.folder import files_in
from components.core.system.errors import InputError
from components.core.system.user_files import checked_file

if TYPE_CHECKING:
    from components.core.pictures.storage import S3

_BUFFER = 1 << 20


class ShardFiles:
    """Reads paths and `s3://` URLs; the S3 client is created for the first URL; for `attempts` see `S3`."""

    def __init__(self, attempts: int | None = None) -> None:
        self._attempts = attempts

    @cached_property
    def _s3(self) -> S3:
        # Stages with files on disk must not wait for the import of s3fs.
        from components.core.pictures.storage import S3

        return S3(self._attempts)

    def open(self, url: str) -> BinaryIO:
        """A stream of a file's bytes; raises `InputError` if it is missing or cannot be read."""
        if is_remote(url):
            return self._s3.open(url)
        checked_file(Path(url), None, None)
        try:
            return Path(url).open("rb", buffering=_BUFFER)
        except OSError as error:
            raise InputError(f"{url} cannot be read ({error.strerror}): put it there or correct the path") from None

    def read(self, url: str) -> bytes:
        """A small file's bytes."""
        with self.open(url) as stream:
            return stream.read()

    def read_part(self, url: str, position: int, size: int) -> bytes:
        """`size` bytes of an object in S3 from `position` on."""
        return self._s3.read_part(url, position, size)

    def exists(self, url: str) -> bool:
        """Whether the file exists."""
        return self._s3.exists(url) if is_remote(url) else Path(url).is_file()

    def etags(self, folder: str) -> dict[str, str]:
        """URL -> ETag of each object below a folder of S3."""
        return self._s3.etags(folder)

    def list(self, folder: str) -> list[str]:
        """The files directly in a folder, sorted; none if the folder is missing."""
        folder = folder.rstrip("/") + "/"
        if is_remote(folder):
            return [url for url in self._s3.etags(folder) if "/" not in url.removeprefix(folder)]
        return [str(path) for path in sorted(files_in(Path(folder), "*"))]


def is_remote(url: str) -> bool:
    """Whether `url` is an S3 URL."""
    return url.startswith("s3://")


SIZES = "sizes.json"
"""File next to the shards with samples by file name, as for open_clip's trainer."""

_MOST = 1_000_000
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):")
_RANGE = re.compile(r"\{(-?\d{1,12})\.\.(-?\d{1,12})")


@dataclass(frozen=True)
class ShardList:
    """Shards in the given order; `sizes` has the numbers of samples from `sizes.json`."""

    urls: list[str]
    sizes: dict[str, int]

    def samples(self) -> int:
        """The number of samples of all shards; raises `InputError` if the size of a shard is unknown."""
        unknown = [url for url in self.urls if url not in self.sizes]
        if unknown:
            raise InputError(f"no {SIZES} next to {unknown[0]} has its number of samples: set samples_per_epoch")
        return sum(self.sizes.values())


def find_shards(given: str | Sequence[str], files: ShardFiles) -> ShardList:
    """The shards of `data/{000..099}.tar`, `s3://bucket/{000..099}.tar`, a folder, or a list of any of these."""
    urls = [url for pattern in ([given] if isinstance(given, str) else given) for url in _expand(pattern, files)]
    if not urls:
        raise InputError("no shards are named: give a folder, a list, or a pattern such as data/{000..099}.tar")
    if (repeated := next(duplicates_everseen(urls), None)) is not None:
        raise InputError(f"shard {repeated} is named twice: name it once")
    remote = [url for url in urls if is_remote(url)]
    # Requests for many thousand objects take minutes; the first and last reveal a mistyped range.
    for url in [*(url for url in urls if not is_remote(url)), *remote[:1], *remote[-1:]]:
        if not files.exists(url):
            raise InputError(f"shard {url} is missing: put it there or correct the pattern")
    folders = {url.removesuffix(url.rpartition("/")[2]) for url in urls}
    sizes = {folder + name: size for folder in folders for name, size in _read_sizes(folder + SIZES, files).items()}
    return ShardList(urls, {url: sizes[url] for url in urls if url in sizes})


def _expand(pattern: str, files: ShardFiles) -> list[str]:
    scheme = _SCHEME.match(pattern)
    if scheme and scheme[1] == "pipe":
        raise InputError(f"shards '{pattern}': commands are not run: name files or s3:// URLs")
    if scheme and scheme[1] != "s3":
        raise InputError(f"shards '{pattern}': '{scheme[1]}:' is not read: name files or s3:// URLs")
    if "{" in pattern or "}" in pattern:
        # The expansion holds whole ranges in memory, so they are counted first.
        if math.prod(abs(int(last) - int(first)) + 1 for first, last in _RANGE.findall(pattern)) > _MOST:
            raise InputError(f"shards '{pattern}': more than {_MOST} shards: correct the range")
        try:
            return list(braceexpand(pattern))
        except ValueError as error:
            raise InputError(f"shards '{pattern}' cannot be expanded ({error}): correct the braces") from None
    if pattern.endswith(".tar"):
        return [pattern]
    tars = [url for url in files.list(pattern) if url.endswith(".tar")]
    if not tars:
        raise InputError(f"shards '{pattern}': no such folder, or no .tar in it: correct the path")
    return tars


def _read_sizes(url: str, files: ShardFiles) -> dict[str, int]:
    if not files.exists(url):
        return {}
    try:
        sizes = {str(name): int(size) for name, size in json.loads(files.read(url)).items()}
    except (ValueError, TypeError, AttributeError):
        sizes = {"": -1}
    if min(sizes.values(), default=0) < 0:
        raise InputError(f"{url} is not a JSON object of samples by shard: write it again or remove it")
    return sizes
