"""Hashes the bytes of all shards, so that a run knows what it trained on; ranks share the work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from components.core.compute.distributed import World
from components.core.files import content_hash, file_hash
from components.core.progress import track
from components.core.settings import Shards
from components.core.shards.listing import ShardFiles, find_shards, is_remote

_DIGITS = 15
"""Of each hash, in hexadecimal: ranks exchange integers of 63 bits."""


def shards_hash(shards: Shards, world: World) -> str:
    """Hash of the shards' bytes in their order, of the columns taken from them, and of the epoch's length.

    Files are known by their SHA-256, of which every rank makes its share; objects in S3 by their ETag, so that nothing
    is fetched. The folder does not count. Every rank must call it and gets the same.

    Raises:
        InputError: the shards cannot be found or read.
    """
    files = ShardFiles()
    urls = find_shards(shards.urls, files).urls
    digests = _digests(urls[world.rank :: world.size], files, show=world.leads)
    hashes = (content_hash(str(world.rank + turn * world.size), digest) for turn, digest in enumerate(digests))
    own = sum(int(found[:_DIGITS], 16) for found in hashes)
    bytes_of_all = sum(world.everyones(own % 16**_DIGITS)) % 16**_DIGITS
    columns = repr(sorted(shards.columns.items()))
    return content_hash(columns, str(shards.samples_per_epoch), f"{bytes_of_all:x}")


def _digests(urls: Sequence[str], files: ShardFiles, *, show: bool) -> list[str]:
    etags: dict[str, str] = {}
    for folder in sorted({url.rpartition("/")[0] for url in urls if is_remote(url)}):
        etags |= files.etags(f"{folder}/")
    shown = track(urls, "read shards for their hash", len(urls), "shard") if show and not etags else urls
    # A missing object is told of when it is read; until then it has no content.
    return [etags.get(url, "") if is_remote(url) else file_hash(Path(url)) for url in shown]
