"""The pictures that questions show: of a folder, made when a question is sent, or of pairs, kept in a temporary file.

Pictures of a folder are upright JPEG without metadata. Input rows of captions can be in the temporary file too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from more_itertools import batched

from components.captions.prompting.request import InputRow, PromptPicture, ShownPicture
from components.core.pictures.folder import PICTURE_BOUND, read_picture
from components.core.pictures.rgb import upright_jpeg
from components.core.pictures.stored_pictures import PICTURE, Pictures
from components.core.system.errors import InputError
from components.core.system.user_files import Bound
from components.core.tables.files import content_hash
from components.core.tables.records import PAIRS

SHOWN = "pictures"
"""Name of an input that is present, with any text, where the question shows the pictures of its captions."""
SIDE = 1024
"""Pixels of the longer side."""
_BLOCK = 4096
_COLUMNS = pa.schema(
    [("id", pa.string()), ("inputs", pa.string()), ("image", pa.binary()), ("media_type", pa.string())]
)


@dataclass(frozen=True)
class PictureFile:
    """A picture in `folder`; the memory has its name and its hash only."""

    folder: Path
    name: str
    most: Bound = PICTURE_BOUND
    media_type: str = "image/jpeg"

    @cached_property
    def sha256(self) -> str:
        """Hash of the file and of its conversion; a file that cannot be read has the hash of its name."""
        try:
            content: str | bytes = self._read()
        except InputError:
            content = self.name
        return content_hash(content, f"upright JPEG, {SIDE} pixels")

    @property
    def data(self) -> bytes:
        """The JPEG; raises ValueError if the picture cannot be read or decoded."""
        try:
            return upright_jpeg(self._read(), SIDE)
        except InputError as error:
            raise ValueError(str(error)) from None

    def _read(self) -> bytes:
        return read_picture(self.folder / self.name, self.folder, self.most)


def picture_row(folder: Path, name: str, most: Bound = PICTURE_BOUND) -> InputRow:
    """The input of a question about a picture of at most so many bytes; its id is the picture's name."""
    return InputRow(name, 0, {SHOWN: "1"}, pictures=(PictureFile(folder, name, most),))


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
