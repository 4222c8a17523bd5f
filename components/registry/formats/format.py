"""The declaration of an export format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from components.encoders.adapter.encoder import Encoder, Vectors


@dataclass(frozen=True)
class ExportedVectors:
    """Unit vectors of texts `[texts, dim]` and images `[images, dim]`; no images if only the text tower is exported."""

    texts: Vectors
    images: Vectors | None = None


@dataclass(frozen=True)
class Format:
    """A folder layout that another library loads.

    Attributes:
        name: the format's name, which is also the name of its file.
        refuse: raises `InputError` for an encoder that the library cannot represent.
        write: fills an empty folder.
        read: loads the folder with the library itself, including tokenizer and image preparation; returns vectors.
        usage: Python code that loads the folder; `{folder}` is its placeholder.
        notes: differences between the library's input processing and this project's.
        rounded: whether the weights are rounded, so that vectors differ and the export reports the loss.
    """

    name: str
    refuse: Callable[[Encoder], None]
    write: Callable[[Encoder, Path], None]
    read: Callable[[Path, Sequence[str], Sequence[Image.Image]], ExportedVectors]
    usage: str
    notes: tuple[str, ...] = ()
    rounded: bool = False
