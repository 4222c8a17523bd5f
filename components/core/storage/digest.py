"""A file's checksums, whole and part by part, as S3 compares them."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from components.core.errors import InputError

PART = 16 << 20
_MOST_PARTS = 10_000
_BLOCK = 1 << 20


@dataclass(frozen=True)
class FileDigest:
    """What a file holds; `parts` and `md5s` are the raw digests of its parts, in order."""

    size: int
    part_size: int
    sha256: str
    parts: tuple[bytes, ...]
    md5s: tuple[bytes, ...]

    def part(self, number: int) -> str:
        """SHA-256 of a part (from 1 on) in base64, as S3 wants it."""
        return base64.b64encode(self.parts[number - 1]).decode()

    def read_part(self, source: Path, number: int) -> bytes:
        """The bytes of a part (from 1 on).

        Raises:
            InputError: the file is no longer what it was.
        """
        try:
            with source.open("rb") as stream:
                stream.seek((number - 1) * self.part_size)
                body = stream.read(self.part_size)
        except FileNotFoundError:
            body = b""
        if hashlib.sha256(body).digest() != self.parts[number - 1]:
            raise InputError(f"{source} changed while it was uploaded: run the command again when it is complete")
        return body

    @property
    def is_multipart(self) -> bool:
        """Whether the file has more than one part."""
        return len(self.parts) > 1

    @property
    def checksum(self) -> str:
        """The object's `ChecksumSHA256`: of several parts, the checksum of their checksums and their number."""
        if not self.is_multipart:
            return self.part(1)
        return f"{base64.b64encode(hashlib.sha256(b''.join(self.parts)).digest()).decode()}-{len(self.parts)}"

    @property
    def etag(self) -> str:
        """The object's ETag in stores that make it of MD5, which those with keys of their own do not."""
        if not self.is_multipart:
            return f'"{self.md5s[0].hex()}"'
        whole = hashlib.md5(b"".join(self.md5s), usedforsecurity=False).hexdigest()
        return f'"{whole}-{len(self.parts)}"'


def digest_file(path: Path, part_size: int = PART) -> FileDigest:
    """Read a file once and return its checksums; parts grow where there would be more than S3 takes."""
    size = path.stat().st_size
    part_size = max(part_size, -(-size // _MOST_PARTS))
    whole, parts, md5s = hashlib.sha256(), [], []
    with path.open("rb") as stream:
        for start in range(0, max(size, 1), part_size):
            sha, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
            left = min(part_size, size - start)
            while left > 0 and (block := stream.read(min(left, _BLOCK))):
                for digest in (whole, sha, md5):
                    digest.update(block)
                left -= len(block)
            parts.append(sha.digest())
            md5s.append(md5.digest())
    return FileDigest(size, part_size, whole.hexdigest(), tuple(parts), tuple(md5s))


def stream_hash(stream: BinaryIO) -> str:
    """SHA-256 of what is left in a stream, in hexadecimal."""
    digest = hashlib.sha256()
    while block := stream.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()
