"""Shards are known by what they hold, and ranks share the reading."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from components.core.compute.distributed import World
from components.core.settings import Shards
from components.core.shards.listing import ShardFiles
from components.training.shards.contents import shards_hash
from tests.support.shard_making import make_shards


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
