"""Pictures that stay in their tar archive until they are opened."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from PIL import Image
from webdataset.tariterators import base_plus_ext

from components.benchmarks.encoding.picture_source import Picture
from components.training.shards.reader import MAX_MEMBER


def tar_pictures(path: Path) -> Callable[[str, str], Picture]:
    """A function from a sample's key and its image's ending to the picture in the archive at `path`.

    Only plain files of a size that the strict reader takes are known; that reader must have read the archive before.
    The function raises a `KeyError` for others.
    """
    places: dict[tuple[str, str], tuple[int, int]] = {}
    # What follows a damaged place is not asked for: the strict reader has stopped there, too.
    with suppress(tarfile.TarError), tarfile.open(path, mode="r:") as archive:
        for member in archive:
            if member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and member.size <= MAX_MEMBER:
                key, ending = base_plus_ext(member.name)
                places[key, (ending or "").lower()] = (member.offset_data, member.size)
            archive.members = []  # type: ignore[attr-defined]
    status = path.stat()

    def picture(key: str, ending: str) -> Picture:
        offset, size = places[key, ending]
        stamp = f"{path} {status.st_size} {status.st_mtime_ns} {offset} {size}"
        encoded = partial(_part, path, offset, size)
        return Picture(f"{path.name}/{key}", stamp, lambda: Image.open(io.BytesIO(encoded())), encoded)

    return picture


def _part(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)
