"""A context whose features are given by hand, so that every answer can be computed on paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from components.core.compute.metrics import Features
from components.core.pictures.rgb import open_picture
from components.data.test_sets.files import LazyPicture
from components.encoders.adapter.images import Preparation
from components.encoders.under_test import EncoderUnderTest
from components.evaluation.scoring.published_context import ImageFeatures, PublishedContext


@dataclass
class ToyEncoder:
    """Texts have the features of a table, others a vector drawn from their letters; images have their mean colour."""

    table: Mapping[str, Sequence[float]]
    dim: int = 3
    asked: list[str] = field(default_factory=list)

    def embed_texts(self, texts: Sequence[str], batch_size: int = 256, title: str | None = None) -> Features:
        """Unit vectors `[texts, dim]`."""
        self.asked += texts
        return unit(self.raw_texts(texts))

    def raw_texts(self, texts: Sequence[str]) -> Features:
        """`[texts, dim]`."""
        return np.array([self.table.get(text, drawn_from(text, self.dim)) for text in texts], dtype=np.float32)

    def embed_pixels(self, pixels: Any) -> Features:
        """Unit vectors `[images, 3]`: the mean colour."""
        return unit(self.raw_pixels(pixels))

    def raw_pixels(self, pixels: Any) -> Features:
        """The mean colour `[images, 3]`."""
        found: Features = pixels.float().mean(dim=(2, 3)).numpy()
        return found


def toy_context(folder: Path, table: Mapping[str, Sequence[float]], **options: Any) -> PublishedContext:
    """A context of a `ToyEncoder` on the files in `folder`; images are cached there."""
    under_test = EncoderUnderTest("toy", ToyEncoder(table), "toy", "toy tower", Preparation(size=8))
    return PublishedContext(under_test, folder, image_features=ImageFeatures(folder / "cache"), **options)


def colour_image(path: Path, colour: Sequence[int], size: tuple[int, int] = (8, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (colour[0], colour[1], colour[2])).save(path)


def picture_bytes(name: str, content: bytes) -> LazyPicture:
    """An encoded image in memory."""
    return LazyPicture(name, sha256(content).hexdigest(), lambda: open_picture(content), lambda: content)


def wide_image(path: Path, middle: Sequence[int], sides: Sequence[int]) -> None:
    """Write an image four times as wide as high: a square cut from its centre shows only the colour of the middle."""
    colour_image(path, sides, (32, 8))
    with Image.open(path) as image:
        image.paste((middle[0], middle[1], middle[2]), (12, 0, 20, 8))
        image.save(path)


def drawn_from(text: str, dim: int) -> Features:
    """A vector that only this text has."""
    return np.random.default_rng(list(text.encode())).normal(size=dim).astype(np.float32)


def unit(rows: Any) -> Features:
    rows = np.asarray(rows, dtype=np.float32)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12), dtype=np.float32)
