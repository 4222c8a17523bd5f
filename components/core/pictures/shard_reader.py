"""Reads the samples of a shard without trusting its contents."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from components.core.pictures.folder import is_copy
from components.core.pictures.shard_files import ShardFiles
from components.core.system.errors import InputError

MAX_MEMBER = 64 << 20
"""Bytes of the largest file that is read from a shard."""

_MAX_HEADERS = 1 << 16
"""Bytes of all headers of one file: names, further fields, maps of sparse files."""
_MOST_FIELDS = 1_000
"""Most fields that headers set for all later files."""
_MOST_EMPTY_READS = 100
_LONG_NUMBER = re.compile(rb"\d{256}")
"""Python 3.11.7 takes quadratic time for the digits of a header."""


class Fault(Exception):
    """The reason why a sample cannot be used; the text is the key of its count."""


class BrokenShardError(Exception):
    """The rest of the archive cannot be read."""


@dataclass(frozen=True)
class TarFile:
    """One file of an archive: its name, its content, and the byte of the archive at which the content begins."""

    name: str
    content: bytes | Fault
    position: int

    def __bool__(self) -> bool:
        # False for unwanted, empty files: webdataset would drop a sample with a true member `__bad__`.
        return bool(self.content)


def tar_files(stream: BinaryIO, wanted: Callable[[str], bool]) -> Iterator[TarFile]:
    """The files of an archive; unwanted files are empty, and are not read into memory.

    Nothing is written to disk, so names are harmless. Other entries than plain files, and too large files, have
    a `Fault` as content. A damaged header, which Python's reader takes for the end of the archive, is an error here.

    Raises:
        BrokenShardError: the stream is not a plain tar (compressed ones are not read), is damaged, or ends too early.
    """
    bounded: Any = _Ending(stream)
    try:
        with tarfile.open(fileobj=bounded, mode="r|", tarinfo=_StrictHeader) as archive:
            for member in archive:
                # The archive would otherwise collect all members in memory.
                archive.members = []  # type: ignore[attr-defined]
                if not member.isdir():
                    content = _content(archive, member) if wanted(member.name) else b""
                    yield TarFile(member.name, content, member.offset_data)
            rest: Any = archive.fileobj
            while block := rest.read(_MAX_HEADERS):
                if block.strip(b"\0"):
                    raise BrokenShardError("more data after the end mark")
    except (BrokenShardError, InputError, MemoryError):
        raise
    except Exception as error:
        # Damaged and hostile headers raise errors of every kind.
        raise BrokenShardError(str(error) or type(error).__name__) from None


@dataclass
class _Ending:
    """A stream that is not read beyond its end: Python's reader would skip a file of any stated size."""

    stream: BinaryIO
    empty: int = 0

    def read(self, size: int) -> bytes:
        block = self.stream.read(size)
        self.empty += not block
        if self.empty > _MOST_EMPTY_READS:
            raise BrokenShardError("it ends within a file")
        return block


@dataclass
class _Headers:
    """The stream of an archive while the headers of one file are read, which may be `_MAX_HEADERS` long."""

    stream: Any
    left: int = _MAX_HEADERS

    def read(self, size: int) -> bytes:
        self.left -= size
        content = bytes(self.stream.read(size)) if self.left >= 0 else b""
        if self.left < 0 or _LONG_NUMBER.search(content):
            raise BrokenShardError("the headers of a file are out of bounds")
        return content

    def tell(self) -> int:
        return int(self.stream.tell())


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
        reading: Any = archive
        stream = reading.fileobj
        if not isinstance(stream, _Headers):
            reading.fileobj = _Headers(stream)
        try:
            if len(reading.pax_headers) > _MOST_FIELDS:
                raise BrokenShardError("the headers of all files are out of bounds")
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise BrokenShardError(str(error)) from None
        finally:
            reading.fileobj = stream


_UNSAFE = re.compile(r"^/|(^|/)\.\.(/|$)|[\x00-\x1f\x7f\ud800-\udfff]")
_LONGEST_KEY = 512


@dataclass(frozen=True)
class RawSample:
    """One sample of a shard, or a fault in its place.

    Attributes:
        members: content by ending, such as `jpg` or `txt`.
        lost: the number of samples of a fault.
        repetition: how often the shards were read to their end before, in this epoch.
        positions: the byte of the shard at which each member begins.
        hint: why members with one of the wanted endings are missing, or empty.
    """

    shard: str
    key: str
    members: Mapping[str, bytes | Fault] = field(default_factory=dict, repr=False)
    fault: Fault | None = None
    lost: int = 1
    repetition: int = 0
    positions: Mapping[str, int] = field(default_factory=dict, repr=False)
    hint: str = ""

    @property
    def name(self) -> str:
        """The name of the sample in messages."""
        return f"{self.shard.rpartition('/')[2]}/{self.key}"

    def text(self, ending: str, key: str = "") -> str:
        """The text of a member, or of the field `key` of a JSON member; empty if it is missing.

        Raises:
            Fault: the member is not a file, or cannot be read.
        """
        if key:
            text: object = self._parsed(ending).get(key)
        else:
            text = self._decoded(ending)
        return text.strip() if isinstance(text, str) else ""

    def fields(self) -> dict[str, Any]:
        """The keys of the JSON member, with the text member as `caption`; raises as `text`."""
        text = self.text("txt")
        return self._parsed("json") | ({"caption": text} if text else {})

    def _parsed(self, ending: str) -> dict[str, Any]:
        try:
            row = json.loads(self._decoded(ending) or "{}")
        except (ValueError, RecursionError):
            raise Fault("unreadable text") from None
        return row if isinstance(row, dict) else {}

    def _decoded(self, ending: str) -> str:
        try:
            # Text editors may write a byte order mark.
            return sound(self.members.get(ending, b"")).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise Fault("unreadable text") from None


def sound(member: bytes | Fault) -> bytes:
    """The content of a member; raises `Fault` if it has none."""
    if isinstance(member, Fault):
        raise member
    return member


@dataclass(frozen=True)
class ShardReader:
    """Reads shards in the layout of img2dataset and open_clip: `key.jpg` with `key.txt` or `key.json`.

    Attributes:
        expected: the number of samples of shards, by path or URL; other shards are not checked.
        usual: the number of lost samples of a broken shard that is not in `expected`.
    """

    files: ShardFiles
    wanted: Collection[str]
    expected: Mapping[str, int]
    usual: int = 1

    def read(self, shard: str) -> Iterator[RawSample]:
        """The samples of a shard in order; a shard that breaks or has too few samples ends with a faulty sample."""
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
            reason = f"{broken}: cut, or not a plain tar, such as a compressed one"
            yield RawSample(shard, reason, fault=Fault("broken shard"), lost=max(1, lost))
        elif lost > 0:
            yield RawSample(shard, f"{lost} samples", fault=Fault("missing from shard"), lost=lost)

    def _samples(self, shard: str, files: Iterator[TarFile]) -> Iterator[RawSample]:
        # webdataset imports torch, for which stages without shards must not wait.
        from webdataset.tariterators import group_by_keys

        repeated = False

        def note(_error: Exception) -> bool:
            nonlocal repeated
            repeated = True
            return True

        own = (file for file in files if not is_copy(file.name))
        named = ({"fname": file.name, "data": file, "__url__": shard} for file in own)
        for sample in group_by_keys(named, keys=_key_and_ending, handler=note):
            key = sample["__key__"]
            files_of = {ending: file for ending, file in sample.items() if ending in self.wanted}
            members = {ending: file.content for ending, file in files_of.items()}
            positions = {ending: file.position for ending, file in files_of.items()}
            fault = Fault("duplicate member") if repeated else None
            if _UNSAFE.search(key) or len(key) > _LONGEST_KEY:
                fault = Fault("unsafe name")
            repeated = False
            dotted = next((one for one in sample if "." in one and one.rpartition(".")[2].lower() in self.wanted), "")
            hint = dotted and f"the key of '{key}.{dotted}' ends at its first dot, as in webdataset: rename it"
            yield RawSample(shard, key, members, fault, positions=positions, hint=hint)


def _key_and_ending(name: str) -> tuple[str, str]:
    """Key and ending as in webdataset; a name without either is a separate sample, so that it is counted."""
    from webdataset.tariterators import base_plus_ext

    key, ending = base_plus_ext(name)
    return (name, "") if key is None else (key, ending)
