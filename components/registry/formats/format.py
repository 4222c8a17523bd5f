"""What an export format declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from components.encoders.adapter.encoder import Encoder, Vectors


@dataclass(frozen=True)
class Features:
    """Unit vectors of texts `[texts, dim]` and images `[images, dim]`; no images of what holds the text tower alone."""

    texts: Vectors
    images: Vectors | None = None


@dataclass(frozen=True)
class Format:
    """One library's way to keep an encoder.

    Attributes:
        name: the format's name and its file's.
        refuse: raises `InputError` for an encoder that the library has no class for.
        write: fills an empty folder.
        read: loads the folder with the library itself, tokenizer and image preparation too, and gives the features.
        usage: how to load the folder, as Python; `{folder}` stands for it.
        notes: where the library treats inputs otherwise than this project does.
        rounded: whether its weights are rounded, so that features differ, which costs what the export then tells.
    """

    name: str
    refuse: Callable[[Encoder], None]
    write: Callable[[Encoder, Path], None]
    read: Callable[[Path, Sequence[str], Sequence[Image.Image]], Features]
    usage: str
    notes: tuple[str, ...] = ()
    rounded: bool = False
