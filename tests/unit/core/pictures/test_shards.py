"""Patterns, folders and lists name shards, which give their samples, and damaged or hostile ones the reason why not."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.pictures import shard_reader as shard_tar
from components.core.pictures.shard_files import ShardFiles, find_shards
from components.core.pictures.shard_reader import BrokenShardError, Fault, RawSample, ShardReader, tar_files
from components.core.system.errors import InputError
from tests.support.shard_making import make_shards, write_tar


def test_patterns_folders_and_lists_name_shards_or_are_refused(tmp_path: Path) -> None:
    pattern, folder = make_shards(tmp_path / "a", 3, 5), tmp_path / "a"
    expected = [str(folder / f"{number:03d}.tar") for number in range(3)]
    for named in (pattern, str(folder), expected, [expected[0], f"{folder}/{{001..002}}.tar"]):
        assert find_shards(named, ShardFiles()).urls == expected
    make_shards(tmp_path / "b", 1, 7)
    found = find_shards([f"{tmp_path}/a/{{000..001}}.tar", f"{tmp_path}/b"], ShardFiles())
    assert found.samples() == 5 + 5 + 7
    (tmp_path / "a" / "sizes.json").write_text(json.dumps({"000.tar": 5, "002.tar": 5}))
    with pytest.raises(InputError, match=r"001\.tar has .* set samples_per_epoch"):
        find_shards(f"{tmp_path}/a", ShardFiles()).samples()
    for content in ("[1]", "{", '{"000.tar": "many"}', '{"000.tar": -1}', '{"000.tar": null}'):
        (tmp_path / "a" / "sizes.json").write_text(content)
        with pytest.raises(InputError, match=r"sizes\.json is not a JSON object"):
            find_shards(f"{tmp_path}/a", ShardFiles())
    refusals: tuple[tuple[str | list[str], str], ...] = (
        ("pipe:touch /tmp/owned", "commands are not run"),
        (["pipe:cat {0..3}.tar"], "commands are not run"),
        ("https://host/{0..3}.tar", "'https:' is not read"),
        ("file:///data/0.tar", "'file:' is not read"),
        ("{000..003.tar", "cannot be expanded"),
        ("{0..99999999999}.tar", "more than 1000000 shards"),
        ("{0..9999}{0..9999}.tar", "more than 1000000 shards"),
        ([], "no shards are named"),
        ("nowhere", "no such folder, or no .tar in it"),
        ("nowhere/{0..1}.tar", "nowhere/0.tar is missing"),
        ([make_shards(tmp_path, 2, 1), str(tmp_path / "001.tar")], r"001\.tar is named twice"),
    )
    for named, message in refusals:
        with pytest.raises(InputError, match=message):
            find_shards(named, ShardFiles())


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


def _files(raw: bytes, wanted: str = "") -> dict[str, bytes | str]:
    files = tar_files(io.BytesIO(raw), lambda name: name.startswith(wanted))
    return {file.name: str(file.content) if isinstance(file.content, Fault) else file.content for file in files}


def test_files_are_in_order_with_their_bytes_and_positions_and_unwanted_ones_are_empty() -> None:
    raw = _tar()
    assert list(_files(raw).items()) == list(CONTENT.items())
    found = tar_files(io.BytesIO(raw), lambda _: True)
    assert {raw[file.position :][: len(CONTENT[file.name])] for file in found} == set(CONTENT.values())
    assert _files(raw, "b") == {"a.txt": b"", "b.txt": b"y" * 10, "c.txt": b""}


@given(st.integers(0, END + BLOCK - 1))
def test_an_archive_cut_anywhere_is_broken(length: int) -> None:
    with pytest.raises(BrokenShardError):
        _files(_tar()[:length])


@given(st.sampled_from([0, BLOCK * 3, BLOCK * 5]), st.integers(0, 147), st.integers(1, 255))
def test_a_damaged_header_is_not_taken_for_the_end(header: int, place: int, flip: int) -> None:
    raw = bytearray(_tar())
    raw[header + place] ^= flip
    with pytest.raises(BrokenShardError):
        _files(bytes(raw))


def test_data_after_the_end_mark_compressed_archives_and_wrong_sizes_are_refused() -> None:
    cases = [(_tar() + _tar(), "after the end mark"), (gzip.compress(_tar()), None)]
    for kind, size, refusal in (
        (tarfile.XHDTYPE, 8 << 30, "out of bounds"),
        (tarfile.XGLTYPE, 8 << 30, "out of bounds"),
        (tarfile.GNUTYPE_LONGNAME, 8 << 30, "out of bounds"),
        (tarfile.REGTYPE, -BLOCK * 2, None),
    ):
        member = tarfile.TarInfo("a.txt")
        member.type, member.size = kind, size
        cases.append((member.tobuf(tarfile.GNU_FORMAT) + b"\0" * BLOCK * 4, refusal))
    for raw, refusal in cases:
        with pytest.raises(BrokenShardError, match=refusal):
            _files(raw)


def test_large_files_are_never_read_and_links_are_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE):
        member = tarfile.TarInfo("a.txt")
        member.type, member.linkname = kind, "/etc/passwd"
        path = write_tar(tmp_path / "0.tar", [(member, b""), ("b.txt", b"sound")])
        expected = {} if kind == tarfile.DIRTYPE else {"a.txt": "not a file"}
        assert _files(path.read_bytes()) == {**expected, "b.txt": b"sound"}, kind
    original = tarfile.TarFile.extractfile

    def extract(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes] | None:
        assert member.size <= 100
        return original(archive, member)

    monkeypatch.setattr(shard_tar, "MAX_MEMBER", 100)
    monkeypatch.setattr(tarfile.TarFile, "extractfile", extract)
    assert _files(_tar()) == CONTENT | {"a.txt": "too large"}


def _pax(content: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    header = tarfile.TarInfo("pax")
    header.type, header.size = kind, len(content)
    return header.tobuf(tarfile.USTAR_FORMAT) + content + b"\0" * (-len(content) % BLOCK)


def _header(kind: bytes = tarfile.REGTYPE, size: int = 0, **fields: bytes) -> bytes:
    """A header of GNU tar; `fields` are bytes by place, such as `at482`."""
    member = tarfile.TarInfo("z.txt")
    member.type, member.size = kind, size
    raw = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    for place, content in fields.items():
        raw[int(place[2:]) : int(place[2:]) + len(content)] = content
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


HOSTILE = {
    "size far beyond the end": _pax(b"40 size=%d\n" % 10**31) + _header(),
    "size of 8 exabytes": _header(size=(1 << 63) - 1),
    "sparse file that is cut": _header(tarfile.GNUTYPE_SPARSE, 512, at482=b"\1", at483=b"%011o\0" % 4096),
    "330 headers for all files": _pax(b"", tarfile.XGLTYPE) * 330 + _header(),
    "300 long names": (_header(tarfile.GNUTYPE_LONGNAME, 4) + b"abc\0".ljust(BLOCK, b"\0")) * 300 + _header(),
    "header of digits": _pax(b"1" * 900_000) + _header(),
    "short header of digits": _pax(b"1" * 60_000) + _header(),
    "sparse map of ten million": _header(tarfile.GNUTYPE_SPARSE, 512, at482=b"\1", at483=b"%011o\0" % 4096)
    + (b"%011o\0" % 512 * 42).ljust(504, b"\0") + b"\1".ljust(8, b"\0") * 200 + b"\1" * BLOCK * 300,
    "fields for all files": b"".join(_pax(b"14 k%07d=v\n" % n, tarfile.XGLTYPE) + _header() for n in range(2_000)),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.timeout(60)
def test_headers_are_bounded_before_they_are_skipped(case: str, tmp_path: Path) -> None:
    path = tmp_path / "0.tar"
    path.write_bytes(_tar()[:END] + HOSTILE[case] + b"\0" * BLOCK * 2)
    *samples, last = _read(path, usual=10)
    assert [sample.key for sample in samples[:2]] == ["a", "b"]
    assert str(last.fault) == "broken shard", last.key
    assert last.lost == max(1, 10 - len(samples))


def test_a_sparse_file_is_a_fault_and_files_of_the_system_are_no_samples(tmp_path: Path) -> None:
    sparse = _header(tarfile.GNUTYPE_SPARSE, 0, at483=b"%011o\0" % 512)
    assert _files(_tar()[:END] + sparse + b"\0" * BLOCK * 2) == CONTENT | {"z.txt": "not a file"}
    members: Members = [("./._a.png", b"x"), ("./a.png", b"1"), ("./a.txt", b"2"), ("__MACOSX/a.png", b"3")]
    (sample,) = _read(write_tar(tmp_path / "0.tar", members))
    assert sample.members == {"png": b"1", "txt": b"2"}


Members = list[tuple[str | tarfile.TarInfo, bytes]]


def _read(path: Path, expected: int | None = None, usual: int = 1) -> list[RawSample]:
    sizes = {} if expected is None else {str(path): expected}
    return list(ShardReader(ShardFiles(), {"png", "txt"}, sizes, usual).read(str(path)))


def test_files_of_one_name_are_one_sample_and_unsafe_names_faults(tmp_path: Path) -> None:
    members: Members = [("a.png", b"1"), ("a.TXT", b"2"), ("a.json", b"{}"), ("sub/b.png", b"3"), ("b.txt", b"4")]
    found = _read(write_tar(tmp_path / "0.tar", members))
    assert [(sample.name, sample.members) for sample in found] == [
        ("0.tar/a", {"png": b"1", "txt": b"2"}), ("0.tar/sub/b", {"png": b"3"}), ("0.tar/b", {"txt": b"4"})
    ]  # fmt: skip
    assert not any(sample.fault for sample in found)
    members = [("a.png", b"1"), ("a.png", b"2"), ("b.png", b"3"), ("c.txt", b"4"), ("c.txt", b"5")]
    faults = {sample.key: str(sample.fault) for sample in _read(write_tar(tmp_path / "0.tar", members))}
    assert faults == {"a": "duplicate member", "b": "None", "c": "duplicate member"}
    for key in ("../a", "/etc/a", "x/../../a", "a\nb", "a\x1b[2J", "\udce9", "k" * 600):
        samples = _read(write_tar(tmp_path / "0.tar", [(f"{key}.png", b"1"), ("good.png", b"2")]))
        assert [str(sample.fault) for sample in samples] == ["unsafe name", "None"], ascii(key)
    for name in ("x.__bad__", "__key__", "x.__key__", ".png", "no-ending"):
        samples = _read(write_tar(tmp_path / "0.tar", [("a.png", b"1"), (name, b"1"), ("z.png", b"2")]))
        assert [sample.key for sample in samples][::2] == ["a", "z"], name
        assert len(samples) == 3, name


def test_lost_samples_of_broken_and_short_shards_are_counted(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "0.tar", [("a.png", b"1"), ("b.png", b"1")])
    assert len(_read(path, 2)) == len(_read(path, 1)) == len(_read(path, None, 9)) == 2
    last = _read(path, 5)[-1]
    assert (str(last.fault), last.lost) == ("missing from shard", 3)
    write_tar(path, [(f"{key}.png", b"1" * 600) for key in "abcd"])
    path.write_bytes(path.read_bytes()[: 3 * 1536 - 100])
    for expected, usual, lost in ((10, 1, 8), (None, 5, 3), (None, 1, 1)):
        *sound, last = _read(path, expected, usual)
        assert [sample.key for sample in sound] == ["a", "b"]
        assert (str(last.fault), last.lost) == ("broken shard", lost), (expected, usual)
