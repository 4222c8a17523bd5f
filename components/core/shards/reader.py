"""The samples of a shard as they lie in it; nothing in it is trusted."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from webdataset.tariterators import base_plus_ext, group_by_keys

from components.core.shards.listing import ShardFiles

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


@dataclass(frozen=True)
class TarFile:
    """One file of an archive: its name, its content, and the byte of the archive that the content begins at."""

    name: str
    content: bytes | Fault
    position: int

    def __bool__(self) -> bool:
        # Not wanted, and so empty: webdataset would drop a sample with a member `__bad__` that is true.
        return bool(self.content)


def tar_files(stream: BinaryIO, wanted: Callable[[str], bool]) -> Iterator[TarFile]:
    """Each file; unwanted ones come empty, and are not read into memory.

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
                    content = _content(archive, member) if wanted(member.name) else b""
                    yield TarFile(member.name, content, member.offset_data)
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


_UNSAFE = re.compile(r"^/|(^|/)\.\.(/|$)|[\x00-\x1f\x7f\ud800-\udfff]")
_LONGEST_KEY = 512


@dataclass(frozen=True)
class RawSample:
    """One sample of a shard, or what was lost in its place.

    Attributes:
        shard: the file's path or URL.
        key: the name that the sample's files share.
        members: content by ending, such as `jpg` or `txt`.
        fault: why the sample as a whole cannot be used.
        lost: how many samples a fault stands for.
        again: how often the shards were read to their end before it, in this epoch.
        positions: the byte of the shard that each member begins at.
    """

    shard: str
    key: str
    members: Mapping[str, bytes | Fault] = field(default_factory=dict, repr=False)
    fault: Fault | None = None
    lost: int = 1
    again: int = 0
    positions: Mapping[str, int] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """What names the sample to a user."""
        return f"{self.shard.rpartition('/')[2]}/{self.key}"

    def text(self, ending: str, key: str = "") -> str:
        """The text of a member, or of the field `key` of a JSON member; empty where there is none.

        Raises:
            Fault: the member is no file, or cannot be read.
        """
        raw = sound(self.members.get(ending, b""))
        try:
            # Editors of text may begin a file with a byte order mark.
            found: Any = raw.decode("utf-8-sig")
            if key and found:
                found = json.loads(found)[key]
        except (KeyError, TypeError):
            return ""
        except (ValueError, RecursionError):
            raise Fault("unreadable text") from None
        return found.strip() if isinstance(found, str) else ""


def sound(member: bytes | Fault) -> bytes:
    """The content of a member.

    Raises:
        Fault: why it has none.
    """
    if isinstance(member, Fault):
        raise member
    return member


@dataclass(frozen=True)
class ShardReader:
    """Reads shards in the layout of img2dataset and open_clip: `key.jpg` beside `key.txt` or `key.json`.

    Attributes:
        files: opens them.
        wanted: endings of the members to keep.
        expected: how many samples a shard should have, by path or URL; others are not checked.
        usual: what is counted as lost when a shard breaks and `expected` does not know it.
    """

    files: ShardFiles
    wanted: Collection[str]
    expected: Mapping[str, int]
    usual: int = 1

    def read(self, shard: str) -> Iterator[RawSample]:
        """The samples of a shard in its order; a shard that breaks, or holds too few, ends in a faulty one.

        Raises:
            InputError: the shard is missing or out of reach.
        """
        count, broken = 0, None
        with self.files.open(shard) as stream:
            files = tar_files(stream, lambda name: _key_and_ending(name)[1].lower() in self.wanted)
            try:
                for sample in self._samples(shard, files):
                    count += 1
                    yield sample
            except BrokenShardError as error:
                broken = error
        lost = self.expected.get(shard, self.usual if broken else 0) - count
        if broken:
            told = f"{broken}: cut, or no plain tar such as a compressed one"
            yield RawSample(shard, told, fault=Fault("broken shard"), lost=max(1, lost))
        elif lost > 0:
            yield RawSample(shard, f"{lost} samples", fault=Fault("missing from shard"), lost=lost)

    def _samples(self, shard: str, files: Iterator[TarFile]) -> Iterator[RawSample]:
        repeated = False

        def note(_error: Exception) -> bool:
            nonlocal repeated
            repeated = True
            return True

        named = ({"fname": file.name, "data": file, "__url__": shard} for file in files)
        for sample in group_by_keys(named, keys=_key_and_ending, handler=note):
            key = sample["__key__"]
            files_of = {ending: file for ending, file in sample.items() if ending in self.wanted}
            members = {ending: file.content for ending, file in files_of.items()}
            positions = {ending: file.position for ending, file in files_of.items()}
            fault = Fault("duplicate member") if repeated else None
            if _UNSAFE.search(key) or len(key) > _LONGEST_KEY:
                fault = Fault("unsafe name")
            repeated = False
            yield RawSample(shard, key, members, fault, positions=positions)


def _key_and_ending(name: str) -> tuple[str, str]:
    """Key and ending as webdataset cuts them; a name without either is a sample of its own, so that it is counted."""
    key, ending = base_plus_ext(name)
    return (name, "") if key is None else (key, ending)
