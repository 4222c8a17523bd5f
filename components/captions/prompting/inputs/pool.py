"""Input rows in a temporary file, read in any order, and the pictures that a question shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from more_itertools import batched

from components.captions.prompting.request import InputRow, PromptPicture, ShownPicture
from components.core.pictures.stored_pictures import PICTURE, Pictures
from components.core.system.errors import InputError
from components.core.tables.records import PAIRS

_BLOCK = 4096
_COLUMNS = pa.schema(
    [("id", pa.string()), ("inputs", pa.string()), ("image", pa.binary()), ("media_type", pa.string())]
)


@contextmanager
def pooled(sources: Iterable[InputRow]) -> Iterator[Pool]:
    """Write `sources`, each about one caption with at most one picture, to a file and read any of them by number.

    The file is in the system's temporary folder (TMPDIR) and takes about 100 bytes plus the picture per source.
    """
    with TemporaryDirectory(prefix="cliptune-pool-") as folder:
        path = Path(folder) / "pool.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _COLUMNS) as stream:
            for block in batched(sources, _BLOCK):
                stream.write_batch(pa.RecordBatch.from_pylist([_row(source) for source in block], _COLUMNS))
        with pa.memory_map(str(path)) as mapped:
            yield Pool(pa.ipc.open_file(mapped))


class Pool:
    """Sources by number, see `pooled`."""

    def __init__(self, stream: Any) -> None:
        batches = [stream.get_batch(number) for number in range(stream.num_record_batches)]
        self._blocks = [batch.columns for batch in batches]
        self._length: int = sum(batch.num_rows for batch in batches)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: int) -> InputRow:
        row = place % _BLOCK
        pair, inputs, image, media_type = (column[row].as_py() for column in self._blocks[place // _BLOCK])
        return InputRow(pair, 0, json.loads(inputs), pictures=(PromptPicture(image, media_type),) if image else ())


def _row(source: InputRow) -> dict[str, object]:
    image, media_type = next(((one.data, one.media_type) for one in source.pictures), (None, None))
    return {"id": source.id, "inputs": json.dumps(dict(source.inputs)), "image": image, "media_type": media_type}


def to_picture(image: bytes, path: Path, pair: str) -> PromptPicture:
    """The encoded image of `pair` with its media type."""
    from PIL import Image

    from components.core.pictures.rgb import open_picture

    try:
        with open_picture(image) as opened:
            return PromptPicture(image, Image.MIME[str(opened.format)])
    except ValueError:
        raise InputError(f"{path}: pair {pair} has an unreadable image: fix or remove the row") from None


@contextmanager
def pictures_of(pairs: set[str], path: Path) -> Iterator[Callable[[str], ShownPicture]]:
    """A look-up of pictures of a `PAIRS` table by pair id; they are kept on disk for the length of the block."""
    places: dict[str, int] = {}

    def found() -> Iterator[InputRow]:
        with Pictures() as files:
            for block in PAIRS.blocks(path, ["id", *PICTURE], rows=256):
                for row in block.to_pylist():
                    if row["id"] in pairs and row["id"] not in places:
                        places[row["id"]] = len(places)
                        yield InputRow(row["id"], 0, {}, pictures=(to_picture(files.one(row), path, row["id"]),))

    with pooled(found()) as pool:
        for pair in sorted(pairs - places.keys())[:1]:
            raise InputError(f"{path} has no pair {pair} to show: run `dvc repro` on both tables again")
        yield lambda pair: pool[places[pair]].pictures[0]
