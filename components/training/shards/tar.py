"""The files of a tar stream, with nothing in it trusted: sizes, types, headers and the end are checked."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

MAX_MEMBER = 64 << 20
"""Bytes of the largest file that is read from a shard."""

_MAX_HEADER = 1 << 20
_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class Fault(Exception):
    """Why a sample cannot be used; the text is the reason that is counted."""


class BrokenShardError(Exception):
    """The archive cannot be read on from here."""


def tar_files(stream: BinaryIO, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes | Fault]]:
    """Name and content of each file; unwanted ones come empty, and are not read into memory.

    Nothing is written to disk, so a name cannot point anywhere. What is not a plain file or too large comes as the
    `Fault` it is. Python's own reader takes a damaged header for the end of the archive; here it is an error.

    Raises:
        BrokenShardError: the stream is no plain tar (compressed ones are not read), is damaged, or ends too early.
    """
    try:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_StrictHeader) as archive:
            for member in archive:
                # The archive remembers all members, which would grow without end.
                archive.members = []  # type: ignore[attr-defined]
                if not member.isdir():
                    yield member.name, _content(archive, member) if wanted(member.name) else b""
            rest: Any = archive.fileobj
            while block := rest.read(_MAX_HEADER):
                if block.strip(b"\0"):
                    raise BrokenShardError("more data after the end mark")
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise BrokenShardError(str(error)) from None


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes | Fault:
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
        return Fault("not a file")
    if member.size > MAX_MEMBER:
        return Fault("too large")
    file = archive.extractfile(member)
    assert file is not None
    return file.read()


class _StrictHeader(tarfile.TarInfo):
    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Any:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise BrokenShardError(str(error)) from None

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Any:
        header = super().frombuf(buf, encoding, errors)
        if header.type in _HEADERS and header.size > _MAX_HEADER:
            raise BrokenShardError("a header's size is out of bounds")
        return header
