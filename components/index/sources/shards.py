"""Pictures in webdataset shards (img2dataset's layout), on disk or in S3: read where they lie, and never unpacked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from components.benchmarks.encoding.context import EncoderUnderTest
from components.core.shards.listing import ShardFiles, ShardList, find_shards, is_remote
from components.core.shards.reader import Fault, RawSample, ShardReader, sound
from components.data.checked_pictures import Sample
from components.data.source import Unusable
from components.data.sources.webdataset import IMAGES, shards_in
from components.index.sources.pictures import picture_blocks
from components.index.sources.source import Block, Opened, Source, tower_of, width_of


def _fits(given: str) -> bool:
    return is_remote(given) or given.endswith(".tar") or "{" in given or bool(shards_in(Path(given)))


def _open(given: str, encoder: EncoderUnderTest | None) -> Opened:
    sees, tower = tower_of(encoder, f"it embeds the pictures in {given}")
    shards = find_shards(shards_in(Path(given)) or given, ShardFiles())
    known = len(shards.sizes) == len(shards.urls)

    def blocks() -> Iterator[Block]:
        return picture_blocks(given, _pictures(shards), sees)

    return Opened(tower, sees.name, width_of(sees), shards.samples() if known else None, blocks)


def _pictures(shards: ShardList) -> Iterator[Sample | Unusable]:
    reader = ShardReader(ShardFiles(), {*IMAGES, "txt", "json"}, shards.sizes)
    for url in shards.urls:
        for sample in reader.read(url):
            try:
                yield _sample(sample)
            except Fault as fault:
                yield Unusable(f"{sample.name} cannot be used ({fault})")


def _sample(sample: RawSample) -> Sample:
    if sample.fault is not None:
        raise sample.fault
    ending = next((ending for ending in IMAGES if ending in sample.members), "")
    raw = sound(sample.members.get(ending, b""))
    if not raw:
        raise Fault("no image")
    caption = sample.text("txt") or sample.text("json", "caption")
    return Sample(sample.name, raw, sample.shard, sample.positions[ending], (caption,), sample.name)


SOURCE = Source(_fits, _open)
