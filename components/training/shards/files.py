"""Shards on disk or in S3 behind one face."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from components.core.errors import InputError
from components.core.storage import S3

_BUFFER = 1 << 20


class ShardFiles:
    """Reads paths and `s3://` URLs alike; a store is only asked once a URL names one."""

    @cached_property
    def _s3(self) -> S3:
        return S3()

    def open(self, url: str) -> BinaryIO:
        """A stream of a file's bytes.

        Raises:
            InputError: it is missing or cannot be read.
        """
        if is_remote(url):
            return self._s3.open(url)
        try:
            return Path(url).open("rb", buffering=_BUFFER)
        except OSError as error:
            raise InputError(f"{url} cannot be read ({error.strerror}): put it there or correct the path") from None

    def read(self, url: str) -> bytes:
        """A small file's bytes."""
        with self.open(url) as stream:
            return stream.read()

    def exists(self, url: str) -> bool:
        """Whether there is such a file."""
        return self._s3.exists(url) if is_remote(url) else Path(url).is_file()

    def etags(self, folder: str) -> dict[str, str]:
        """What the store says that each object below a folder of S3 holds, by URL."""
        return self._s3.etags(folder)

    def list(self, folder: str) -> list[str]:
        """The files directly in a folder, sorted; none when there is no folder."""
        folder = folder.rstrip("/") + "/"
        if is_remote(folder):
            return [url for url in self._s3.list(folder) if "/" not in url.removeprefix(folder)]
        return sorted(str(path) for path in Path(folder).glob("*") if path.is_file())


def is_remote(url: str) -> bool:
    """Whether `url` names something in S3."""
    return url.startswith("s3://")
