"""Another index: its vectors and rows as they are, to be searched in another way, or to be one with this one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from components.benchmarks.encoding.context import EncoderUnderTest
from components.core.metrics import Features, Indices
from components.index.facts import FACTS
from components.index.image_index import ImageIndex
from components.index.sources.source import Block, Opened, Source

_BLOCK = 8192


def _fits(given: str) -> bool:
    return (Path(given) / FACTS).is_file()


def _open(given: str, encoder: EncoderUnderTest | None) -> Opened:
    index = ImageIndex.open(Path(given))
    if encoder is not None:
        index.accept(encoder)
    facts = index.facts
    return Opened(facts.image_tower_sha256, facts.encoder, facts.dim, len(index), lambda: _blocks(given, index))


def _blocks(given: str, index: ImageIndex) -> Iterator[Block]:
    for start, block in index.vectors.blocks(_BLOCK):
        rows = index.rows(np.arange(start, start + len(block)))

        def vectors(kept: Indices, block: Features = block) -> Features:
            return block[kept]

        yield Block(given, rows, vectors)


SOURCE = Source(_fits, _open)
