"""Sources that are met in any order: kept in a file for a while, so that memory does not grow with them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import pyarrow as pa
from more_itertools import batched

from components.captions.request import Picture, Source

_BLOCK = 4096
_COLUMNS = pa.schema(
    [("id", pa.string()), ("inputs", pa.string()), ("image", pa.binary()), ("media_type", pa.string())]
)


class Pool(Protocol):
    """Sources by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: int) -> Source: ...


@contextmanager
def pooled(sources: Iterable[Source]) -> Iterator[Pool]:
    """Write `sources`, each about one caption with at most one picture, to a file and read any by number.

    The file lies in the system's temporary folder (TMPDIR) and takes about 100 bytes and the picture for each source.
    """
    with TemporaryDirectory(prefix="cliptune-pool-") as folder:
        path = Path(folder) / "pool.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _COLUMNS) as stream:
            for block in batched(sources, _BLOCK):
                stream.write_batch(pa.RecordBatch.from_pylist([_row(source) for source in block], _COLUMNS))
        with pa.memory_map(str(path)) as mapped:
            yield _FilePool(pa.ipc.open_file(mapped))


class _FilePool:
    def __init__(self, stream: Any) -> None:
        batches = [stream.get_batch(number) for number in range(stream.num_record_batches)]
        self._blocks = [batch.columns for batch in batches]
        self._length: int = sum(batch.num_rows for batch in batches)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: int) -> Source:
        row = place % _BLOCK
        pair, inputs, image, media_type = (column[row].as_py() for column in self._blocks[place // _BLOCK])
        return Source(pair, 0, json.loads(inputs), pictures=(Picture(image, media_type),) if image else ())


def _row(source: Source) -> dict[str, object]:
    image, media_type = next(((one.data, one.media_type) for one in source.pictures), (None, None))
    return {"id": source.id, "inputs": json.dumps(dict(source.inputs)), "image": image, "media_type": media_type}
