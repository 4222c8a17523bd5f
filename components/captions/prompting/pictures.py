"""The pictures that questions show: those of a folder, as upright JPEG without metadata, and those of pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from components.captions.prompting.request import InputRow, PromptPicture
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
def pictures_of(pairs: set[str], path: Path) -> Iterator[Callable[[str], PromptPicture]]:
    """A look-up of pictures of a `PAIRS` table by pair id.

    For the length of the block they are files of the system's temporary folder (TMPDIR).
    """
    kinds: dict[str, str] = {}
    with TemporaryDirectory(prefix="cliptune-pictures-") as name, Pictures() as files:

        def copy_of(pair: str) -> Path:
            return Path(name, content_hash(pair))

        for block in PAIRS.blocks(path, ["id", *PICTURE], rows=256):
            for row in block.to_pylist():
                if row["id"] in pairs and row["id"] not in kinds:
                    picture = to_picture(files.one(row), path, row["id"])
                    copy_of(row["id"]).write_bytes(picture.data)
                    kinds[row["id"]] = picture.media_type
        for pair in sorted(pairs - kinds.keys())[:1]:
            raise InputError(f"{path} has no pair {pair} to show: run `dvc repro` on both tables again")
        yield lambda pair: PromptPicture(copy_of(pair).read_bytes(), kinds[pair])
