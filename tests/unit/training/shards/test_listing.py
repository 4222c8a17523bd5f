"""Patterns, folders and lists name shards, which are known by what they hold; what cannot be read is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from components.core.compute.distributed import World
from components.core.errors import InputError
from components.core.settings import Shards
from components.training.shards.listing import ShardFiles, find_shards, shards_hash
from tests.support.shard_making import make_shards


def test_a_pattern_a_folder_and_a_list_name_the_same_shards(tmp_path: Path) -> None:
    pattern = make_shards(tmp_path, 3, 2)
    expected = [str(tmp_path / f"{number:03d}.tar") for number in range(3)]
    for given in (pattern, str(tmp_path), expected, [expected[0], f"{tmp_path}/{{001..002}}.tar"]):
        assert find_shards(given, ShardFiles()).urls == expected


def test_sizes_are_summed_over_the_shards_that_are_named(tmp_path: Path) -> None:
    make_shards(tmp_path / "a", 3, 5)
    make_shards(tmp_path / "b", 1, 7)
    found = find_shards([f"{tmp_path}/a/{{000..001}}.tar", f"{tmp_path}/b"], ShardFiles())
    assert found.samples() == 5 + 5 + 7


def test_an_unknown_size_is_asked_for(tmp_path: Path) -> None:
    make_shards(tmp_path, 2, 5)
    (tmp_path / "sizes.json").write_text(json.dumps({"000.tar": 5}))
    with pytest.raises(InputError, match=r"001\.tar says .* set samples_per_epoch"):
        find_shards(str(tmp_path), ShardFiles()).samples()


@pytest.mark.parametrize("content", ["[1]", "{", '{"000.tar": "many"}', '{"000.tar": -1}', '{"000.tar": null}'])
def test_broken_sizes_are_named(content: str, tmp_path: Path) -> None:
    make_shards(tmp_path, 1, 1)
    (tmp_path / "sizes.json").write_text(content)
    with pytest.raises(InputError, match=r"sizes\.json is not a JSON object"):
        find_shards(str(tmp_path), ShardFiles())


@pytest.mark.parametrize(
    ("given", "message"),
    [
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
    ],
)
def test_what_cannot_be_read_is_refused(given: str | list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_shards(given, ShardFiles())


def test_a_shard_named_twice_is_refused(tmp_path: Path) -> None:
    pattern = make_shards(tmp_path, 2, 1)
    with pytest.raises(InputError, match=r"001\.tar is named twice"):
        find_shards([pattern, str(tmp_path / "001.tar")], ShardFiles())


def _hash(urls: Any, world: World | None = None, **options: Any) -> str:
    return shards_hash(Shards(urls=str(urls), **({"columns": {"caption": "txt"}} | options)), world or World())


def test_the_same_shards_elsewhere_are_the_same(tmp_path: Path) -> None:
    make_shards(tmp_path / "one", 3, 2)
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    assert _hash(tmp_path / "one") == _hash(tmp_path / "other")


def test_other_bytes_order_columns_or_length_are_told_apart(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    make_shards(folder, 3, 2)
    known = [
        _hash(folder),
        _hash(f"{folder}/{{000,002,001}}.tar"),
        _hash(folder, columns={"caption": "json:caption"}),
        _hash(folder, samples_per_epoch=4),
    ]
    shard = folder / "001.tar"
    content = shard.read_bytes()
    assert b"caption 2" in content
    shard.write_bytes(content.replace(b"caption 2", b"caption 9"))
    known.append(_hash(folder))
    assert len(set(known)) == len(known)


@dataclass(frozen=True)
class Told(World):
    """A rank that notes what it tells the others, and is told what they said."""

    others: tuple[int, ...] = ()

    def everyones(self, value: int) -> list[int]:
        assert 0 <= value < 2**63
        object.__setattr__(self, "others", (*self.others, value))
        return list(self.others)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_ranks_share_the_reading_and_find_what_one_finds(size: int, tmp_path: Path) -> None:
    make_shards(tmp_path, 5, 1)
    others: tuple[int, ...] = ()
    for rank in range(size):
        world = Told(rank, size, others)
        found = _hash(tmp_path, world)
        others = world.others
    assert found == _hash(tmp_path)


def test_objects_in_a_store_are_known_without_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    etags = {f"s3://bucket/shards/{number:03}.tar": f'"etag-{number}"' for number in range(3)}
    monkeypatch.setattr(ShardFiles, "exists", lambda _self, url: url in etags)
    monkeypatch.setattr(ShardFiles, "etags", lambda _self, folder: {k: v for k, v in etags.items() if folder in k})
    before = _hash("s3://bucket/shards/{000..002}.tar")
    assert _hash("s3://bucket/shards/{000..002}.tar") == before
    etags["s3://bucket/shards/001.tar"] = '"another"'
    assert _hash("s3://bucket/shards/{000..002}.tar") != before
