"""The pictures that a question shows, from the table of pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from components.captions.inputs.pool import pooled
from components.captions.request import Picture, Source
from components.core.errors import InputError
from components.core.pictures import PICTURE, Pictures
from components.core.records import PAIRS


def to_picture(image: bytes, path: Path, pair: str) -> Picture:
    """The encoded image of `pair` with its media type.

    Raises:
        InputError: it is no image; the message names `path` and the pair.
    """
    from PIL import Image

    from components.core.rgb import open_picture

    try:
        with open_picture(image) as opened:
            return Picture(image, Image.MIME[str(opened.format)])
    except ValueError:
        raise InputError(f"{path}: pair {pair} has an image that cannot be shown: fix or remove the row") from None


@contextmanager
def pictures_of(pairs: set[str], path: Path) -> Iterator[Callable[[str], Picture]]:
    """Looks up the pictures of some pairs of a `PAIRS` table by id; kept on disk meanwhile.

    Raises:
        InputError: the table is missing or damaged, or lacks one of the pairs.
    """
    places: dict[str, int] = {}

    def found() -> Iterator[Source]:
        with Pictures() as files:
            for block in PAIRS.blocks(path, ["id", *PICTURE], rows=256):
                for row in block.to_pylist():
                    if row["id"] in pairs and row["id"] not in places:
                        places[row["id"]] = len(places)
                        yield Source(row["id"], 0, {}, pictures=(to_picture(files.one(row), path, row["id"]),))

    with pooled(found()) as pool:
        for pair in sorted(pairs - places.keys())[:1]:
            raise InputError(f"{path} has no pair {pair} to show: run `dvc repro` on both tables again")
        yield lambda pair: pool[places[pair]].pictures[0]
