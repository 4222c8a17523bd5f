"""The pictures of a folder as questions show them: upright JPEG without metadata, made when a question is sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from components.captions.prompting.inputs.readers import SHOWN, Accepts, Ask
from components.captions.prompting.request import InputRow
from components.core.pictures.folder import PICTURE_BOUND, pictures_in, read_picture
from components.core.pictures.rgb import upright_jpeg
from components.core.system.errors import InputError
from components.core.system.user_files import Bound
from components.core.tables.files import content_hash

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


def read_pictures(path: Path, _accepts: Accepts, ask: Ask) -> Iterator[InputRow]:
    """The first pictures of a folder and its subfolders by name; raises as `pictures_in`."""
    return islice((picture_row(path, name) for name in pictures_in(path).names), ask.limit)
