"""Objects to files: whole or not at all, and equal to what was stored."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from components.core.errors import InputError
from components.core.files import atomic_file, file_hash
from components.core.storage.reading import ObjectReader
from components.core.storage.upload import SHA256
from components.core.storage.url import object_url

_READ = 1 << 20
_MEND = "upload it again"


def download(client: Any, url: str, target: Path, on_bytes: Callable[[int], None], wanted: str | None = None) -> str:
    """Write an object to a file; a file that holds it already is left alone. Its SHA-256 is returned.

    Args:
        client: boto3's S3 client.
        url: the object.
        target: the file.
        on_bytes: called with how many more bytes are there.
        wanted: the SHA-256 that the content must have; the one stored beside the object when not given.

    Raises:
        InputError: the object is missing, cannot be read, or is not what was stored.
    """
    object_url(url)
    with io.BufferedReader(reader := ObjectReader(client, url), _READ) as stream:
        wanted = wanted or reader.metadata.get(SHA256)
        if wanted and target.is_file() and target.stat().st_size == reader.size and file_hash(target) == wanted:
            on_bytes(reader.size)
            return wanted
        try:
            with atomic_file(target) as temporary:
                found, md5 = _copy(cast(BinaryIO, stream), temporary, on_bytes)
                if wanted and found != wanted:
                    raise InputError(
                        f"{url} is not what was stored (SHA-256 {found[:12]}..., not {wanted[:12]}...): {_MEND}"
                    )
                if not wanted and _is_md5(reader.etag) and reader.etag.strip('"') != md5:
                    raise InputError(f"{url} is not what was stored (its MD5 is not its ETag): {_MEND}")
        except OSError as error:
            raise InputError(f"{target} cannot be written ({error.strerror}): make room, or correct the path") from None
    return found


def _copy(stream: BinaryIO, path: Path, on_bytes: Callable[[int], None]) -> tuple[str, str]:
    """Write what is left in a stream to a file; its SHA-256 and MD5 in hexadecimal."""
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    with path.open("wb") as output:
        while block := stream.read(_READ):
            output.write(block)
            sha256.update(block)
            md5.update(block)
            on_bytes(len(block))
    return sha256.hexdigest(), md5.hexdigest()


def _is_md5(etag: str) -> bool:
    """Whether an ETag looks like an MD5, which objects of one part have in nearly all stores."""
    return len(etag.strip('"')) == 32
