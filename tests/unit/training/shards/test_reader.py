"""Samples of a shard: what belongs together, and what is wrong with it."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from components.training.shards.listing import ShardFiles
from components.training.shards.reader import RawSample, ShardReader
from tests.support.shard_making import write_tar

Members = list[tuple[str | tarfile.TarInfo, bytes]]


def _read(path: Path, expected: int | None = None, usual: int = 1) -> list[RawSample]:
    sizes = {} if expected is None else {str(path): expected}
    return list(ShardReader(ShardFiles(), {"png", "txt"}, sizes, usual).read(str(path)))


def test_files_of_one_name_are_one_sample(tmp_path: Path) -> None:
    members: Members = [("a.png", b"1"), ("a.TXT", b"2"), ("a.json", b"{}"), ("sub/b.png", b"3"), ("b.txt", b"4")]
    found = _read(write_tar(tmp_path / "0.tar", members))
    assert [(sample.name, sample.members) for sample in found] == [
        ("0.tar/a", {"png": b"1", "txt": b"2"}),
        ("0.tar/sub/b", {"png": b"3"}),
        ("0.tar/b", {"txt": b"4"}),
    ]
    assert not any(sample.fault for sample in found)


def test_a_name_that_comes_again_is_a_fault_of_that_sample_alone(tmp_path: Path) -> None:
    members: Members = [("a.png", b"1"), ("a.png", b"2"), ("b.png", b"3"), ("c.txt", b"4"), ("c.txt", b"5")]
    found = _read(write_tar(tmp_path / "0.tar", members))
    assert [(sample.key, str(sample.fault)) for sample in found] == [
        ("a", "duplicate member"),
        ("b", "None"),
        ("c", "duplicate member"),
    ]


@pytest.mark.parametrize("key", ["../a", "/etc/a", "x/../../a", "a\nb", "a\x1b[2J", "\udce9", "k" * 600], ids=ascii)
def test_unsafe_names_are_faults(key: str, tmp_path: Path) -> None:
    found = _read(write_tar(tmp_path / "0.tar", [(f"{key}.png", b"1"), ("good.png", b"2")]))
    assert [str(sample.fault) for sample in found] == ["unsafe name", "None"]


@pytest.mark.parametrize("name", ["x.__bad__", "__key__", "x.__key__", ".png", "no-ending"])
def test_names_that_mean_something_to_webdataset_hide_no_sample(name: str, tmp_path: Path) -> None:
    found = _read(write_tar(tmp_path / "0.tar", [("a.png", b"1"), (name, b"1"), ("z.png", b"2")]))
    assert [sample.key for sample in found][::2] == ["a", "z"]
    assert len(found) == 3


@pytest.mark.parametrize(("expected", "usual", "lost"), [(10, 1, 8), (None, 5, 3), (None, 1, 1)])
def test_what_a_broken_shard_lost_is_counted(expected: int | None, usual: int, lost: int, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "0.tar", [(f"{key}.png", b"1" * 600) for key in "abcd"])
    path.write_bytes(path.read_bytes()[: 3 * 1536 - 100])
    *sound, last = _read(path, expected, usual)
    assert [sample.key for sample in sound] == ["a", "b"]
    assert (str(last.fault), last.lost) == ("broken shard", lost)


def test_fewer_samples_than_sizes_json_says_are_counted(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "0.tar", [("a.png", b"1"), ("b.png", b"1")])
    assert len(_read(path, 2)) == len(_read(path, 1)) == len(_read(path, None, 9)) == 2
    last = _read(path, 5)[-1]
    assert (str(last.fault), last.lost) == ("missing from shard", 3)
