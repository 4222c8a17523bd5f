"""The encoder that a benchmark scores, whatever kind it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from components.benchmarks.encoding.text_features import TextEncoder
from components.core.metrics import Features

if TYPE_CHECKING:
    from torch import Tensor


@runtime_checkable
class ImageEncoder(TextEncoder, Protocol):
    """An encoder that also sees."""

    def embed_pixels(self, pixels: Tensor) -> Features:
        """Unit vectors `[images, dim]` of RGB pixels, uint8 or already normalised float32 `[images, 3, size, size]`."""


@dataclass(frozen=True)
class EncoderUnderTest:
    """An encoder with what identifies it.

    Attributes:
        name: how the user called it, fit for a file's name.
        encoder: embeds texts and, if it has an image tower, images.
        sha256: hash of everything that its results depend on.
        image_tower_sha256: hash of everything that its image features depend on; None for a text encoder.
        image_size: pixels of a side that its image tower sees; 0 for a text encoder.
        folder: where it was loaded from, if that is an encoder's folder of this project.
    """

    name: str
    encoder: TextEncoder
    sha256: str
    image_tower_sha256: str | None = None
    image_size: int = 0
    folder: Path | None = None
