"""Pictures that an encoder is still to embed: those that cannot be decoded are left out, the others come in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from more_itertools import chunked

from components.benchmarks.encoding.context import EncoderUnderTest, ImageEncoder
from components.core.ahead import mapped
from components.core.errors import InputError
from components.core.files import image_id
from components.core.metrics import Features, Indices
from components.data.checked_pictures import Sample
from components.data.checking import check_picture
from components.data.source import Unusable, UnusableError
from components.encoders.embeddings import require_finite
from components.index.rows import further_names
from components.index.sources.source import Block

_BLOCK, _BATCH = 256, 64
"""Pictures whose bytes are in memory, and those that go through the tower, at a time."""
Further = Mapping[str, Mapping[str, str]]
"""A picture's name -> its further columns."""


def picture_blocks(
    where: str, found: Iterable[Sample | Unusable], encoder: EncoderUnderTest, further: Further | None = None
) -> Iterator[Block]:
    """Blocks of the pictures, all with the same columns, and of the reasons why others cannot be used."""
    see, further = _on_accelerator(encoder), further or {}
    columns = further_names(list(dict.fromkeys(name for known in further.values() for name in known)))
    with closing(mapped(_fault, found, per_thread=32)) as looked_at:
        for some in chunked(looked_at, _BLOCK):
            own = [one for one, fault in some if fault is None and isinstance(one, Sample)]
            texts = {
                called: [further.get(one.name, {}).get(name) or None for one in own] for name, called in columns.items()
            }
            unusable = tuple(fault for _, fault in some if fault is not None)
            yield Block(where, _rows(own, texts), partial(see.embed, own), unusable)


def _fault(one: Sample | Unusable) -> str | None:
    if isinstance(one, Unusable):
        return one.reason
    try:
        check_picture(one.raw, one.place)
    except UnusableError as error:
        return str(error)
    return None


def _rows(own: list[Sample], texts: Mapping[str, list[str | None]]) -> pa.Table:
    columns: dict[str, object] = {
        "image_id": pa.array([image_id(one.raw) for one in own], pa.string()),
        "caption": pa.array([next(iter(one.captions), "") or None for one in own], pa.string()),
        "name": [one.name for one in own],
        "file": [one.file for one in own],
        "position": pa.array([one.position for one in own], pa.int64()),
        "size": [len(one.raw) for one in own],
    }
    return pa.table(columns | {name: pa.array(column, pa.string()) for name, column in texts.items()})


@dataclass(frozen=True)
class _Sees:
    """An image tower and the device that it is on."""

    tower: ImageEncoder
    device: str
    name: str
    size: int

    def embed(self, pictures: list[Sample], rows: Indices) -> Features:
        """Unit vectors `[rows, dim]` of some of the pictures."""
        from components.encoders.adapter.images import decode

        found = []
        for batch in chunked([pictures[row] for row in rows], _BATCH):
            places = [one.place for one in batch]
            pixels = decode([one.raw for one in batch], self.size, places)
            vectors = self.tower.embed_pixels(pixels.to(self.device))
            require_finite(vectors, self.name, "picture", places)
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
    return _Sees(encoder.encoder, device, encoder.name, encoder.image_size)
