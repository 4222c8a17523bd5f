"""Hostile and damaged archives: nothing large is read, nothing is lost without a word."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.training.shards import reader as shard_tar
from components.training.shards.reader import BrokenShardError, Fault, tar_files
from tests.support.shard_making import write_tar

CONTENT = {"a.txt": b"x" * 700, "b.txt": b"y" * 10, "c.txt": b""}
BLOCK = 512
END = BLOCK * (1 + 2 + 1 + 1 + 1)
"""Where the end mark of `_tar()` starts: three headers, two blocks of content, one block of content, none."""


def _tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in CONTENT.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _read(raw: bytes, wanted: str = "") -> dict[str, bytes | str]:
    files = tar_files(io.BytesIO(raw), lambda name: name.startswith(wanted))
    return {name: str(content) if isinstance(content, Fault) else content for name, content in files}


def test_files_come_in_order_with_their_bytes() -> None:
    assert list(_read(_tar()).items()) == list(CONTENT.items())


def test_unwanted_files_come_empty() -> None:
    assert _read(_tar(), "b") == {"a.txt": b"", "b.txt": b"y" * 10, "c.txt": b""}


@given(st.integers(0, END + BLOCK - 1))
def test_an_archive_cut_anywhere_is_broken(length: int) -> None:
    with pytest.raises(BrokenShardError):
        _read(_tar()[:length])


@given(st.sampled_from([0, BLOCK * 3, BLOCK * 5]), st.integers(0, 147), st.integers(1, 255))
def test_a_damaged_header_is_no_end(header: int, place: int, flip: int) -> None:
    raw = bytearray(_tar())
    raw[header + place] ^= flip
    with pytest.raises(BrokenShardError):
        _read(bytes(raw))


def test_data_behind_the_end_mark_is_not_overlooked() -> None:
    with pytest.raises(BrokenShardError, match="after the end mark"):
        _read(_tar() + _tar())


def test_compressed_archives_are_refused() -> None:
    with pytest.raises(BrokenShardError):
        _read(gzip.compress(_tar()))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_what_is_no_plain_file_is_a_fault(kind: bytes, tmp_path: Path) -> None:
    member = tarfile.TarInfo("a.txt")
    member.type, member.linkname = kind, "/etc/passwd"
    path = write_tar(tmp_path / "0.tar", [(member, b""), ("b.txt", b"sound")])
    assert _read(path.read_bytes()) == {"a.txt": "not a file", "b.txt": b"sound"}


def test_folders_are_no_samples(tmp_path: Path) -> None:
    member = tarfile.TarInfo("folder.x")
    member.type = tarfile.DIRTYPE
    assert _read(write_tar(tmp_path / "0.tar", [(member, b"")]).read_bytes()) == {}


def test_a_file_that_is_too_large_is_never_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_tar, "MAX_MEMBER", 100)
    monkeypatch.setattr(tarfile.TarFile, "extractfile", _small_only(tarfile.TarFile.extractfile))
    assert _read(_tar()) == CONTENT | {"a.txt": "too large"}


def _small_only(original):  # type: ignore[no-untyped-def]
    def extract(archive: tarfile.TarFile, member: tarfile.TarInfo):  # type: ignore[no-untyped-def]
        assert member.size <= 100
        return original(archive, member)

    return extract


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_claims_gigabytes_is_not_believed(kind: bytes) -> None:
    member = tarfile.TarInfo("pax")
    member.type, member.size = kind, 8 << 30
    raw = member.tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(BrokenShardError, match="out of bounds"):
        _read(raw + b"\0" * BLOCK * 4)


def test_a_negative_size_does_not_loop() -> None:
    member = tarfile.TarInfo("a.txt")
    member.size = -BLOCK * 2
    with pytest.raises(BrokenShardError):
        _read(member.tobuf(tarfile.GNU_FORMAT) + b"\0" * BLOCK * 4)
