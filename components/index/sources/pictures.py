"""Pictures that an encoder is still to embed: those that cannot be decoded are left out, the others come in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from more_itertools import chunked

from components.benchmarks.encoding.context import EncoderUnderTest, ImageEncoder
from components.core.ahead import mapped
from components.core.errors import InputError
from components.core.files import image_id
from components.core.metrics import Features, Indices
from components.data.checking import check_picture
from components.data.source import UnusableError
from components.encoders.embeddings import require_finite
from components.index.sources.source import Block

_BLOCK, _BATCH = 256, 64
"""Pictures whose bytes are in memory, and those that go through the tower, at a time."""


@dataclass(frozen=True)
class Picture:
    """A picture as it lies somewhere.

    Attributes:
        name: of its file.
        raw: its bytes.
        file, position: see `components.core.records.PAIRS`.
        caption: empty where there is none.
        further: what else is known of it, by column.
    """

    name: str
    raw: bytes
    file: str
    position: int | None = None
    caption: str = ""
    further: Mapping[str, object] = field(default_factory=dict)


def picture_blocks(where: str, found: Iterable[Picture | str], encoder: EncoderUnderTest) -> Iterator[Block]:
    """Blocks of the pictures, and of why others cannot be used."""
    see = _on_accelerator(encoder)
    with closing(mapped(_fault, found, per_thread=32)) as looked_at:
        for some in chunked(looked_at, _BLOCK):
            own = [one for one, fault in some if fault is None and isinstance(one, Picture)]
            yield _block(where, own, tuple(fault for _, fault in some if fault is not None), encoder, see)


def _fault(one: Picture | str) -> str | None:
    if isinstance(one, str):
        return one
    try:
        check_picture(one.raw, one.name)
    except UnusableError as error:
        return str(error)
    return None


def _block(where: str, own: list[Picture], unusable: tuple[str, ...], encoder: EncoderUnderTest, see: _Sees) -> Block:
    columns: dict[str, object] = {
        "image_id": pa.array([image_id(one.raw) for one in own], pa.string()),
        "caption": pa.array([one.caption or None for one in own], pa.string()),
        "name": [one.name for one in own],
        "file": [one.file for one in own],
        "position": pa.array([one.position for one in own], pa.int64()),
        "size": [len(one.raw) for one in own],
    }
    for name in dict.fromkeys(name for one in own for name in one.further):
        columns[name] = [one.further.get(name) for one in own]

    def vectors(rows: Indices) -> Features:
        return see.embed([own[row] for row in rows], encoder)

    return Block(where, pa.table(columns), vectors, unusable)


@dataclass(frozen=True)
class _Sees:
    """An image tower and the device that it is on."""

    tower: ImageEncoder
    device: str

    def embed(self, pictures: list[Picture], encoder: EncoderUnderTest) -> Features:
        """Unit vectors `[pictures, dim]`."""
        from components.encoders.adapter.images import decode

        found = []
        for batch in chunked(pictures, _BATCH):
            names = [one.name for one in batch]
            pixels = decode([one.raw for one in batch], encoder.image_size, names)
            vectors = self.tower.embed_pixels(pixels.to(self.device))
            require_finite(vectors, encoder.name, "picture", names)
            found.append(vectors)
        return np.concatenate(found)


def _on_accelerator(encoder: EncoderUnderTest) -> _Sees:
    """The encoder with its image tower on the GPU, if there is one; texts stay on the processor."""
    from components.core.compute.hardware import pick_device
    from components.encoders.adapter.encoder import Encoder

    if not isinstance(encoder.encoder, ImageEncoder):
        raise InputError(f"--encoder '{encoder.name}' has no image tower: give one that embeds images")
    device = "cpu"
    if isinstance(encoder.encoder, Encoder):
        device = pick_device("auto")
        encoder.encoder.model.visual.to(device)
    return _Sees(encoder.encoder, device)
