"""An encoder that benchmarks, an index or the explorer use, with its name and hashes; the scores of a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from components.core.compute.metrics import Features
from components.core.system.errors import InputError
from components.encoders.embeddings import non_finite_row

if TYPE_CHECKING:
    from torch import Tensor

    from components.encoders.adapter.images import Preparation


class TextEncoder(Protocol):
    """The part of an encoder that benchmarks use."""

    def embed_texts(self, texts: Sequence[str], batch_size: int = ..., title: str | None = ...) -> Features:
        """Unit vectors `[texts, dim]`."""


def embed_new(encoder: TextEncoder, texts: Sequence[str], known: dict[str, Features]) -> Features:
    """Unit features `[texts, dim]`; texts missing from `known` are embedded once and added to it."""
    new = list(dict.fromkeys(text for text in texts if text not in known))
    if new:
        features = encoder.embed_texts(new, title="embed texts")
        bad = non_finite_row(features)
        if bad is not None:
            raise InputError(f"the encoder gives '{new[bad]}' a non-finite feature: train it again")
        known.update(zip(new, features, strict=True))
    return np.stack([known[text] for text in texts])


@runtime_checkable
class ImageEncoder(TextEncoder, Protocol):
    """An encoder that also embeds images."""

    def embed_pixels(self, pixels: Tensor) -> Features:
        """Unit vectors `[images, dim]` of RGB pixels, uint8 or already normalised float32 `[images, 3, size, size]`."""


@runtime_checkable
class RawEncoder(ImageEncoder, Protocol):
    """An encoder that also returns features that are not normalised, which some released code uses."""

    def raw_texts(self, texts: Sequence[str]) -> Features:
        """Features `[texts, dim]`."""

    def raw_pixels(self, pixels: Tensor) -> Features:
        """Features `[images, dim]` of the same pixels as `embed_pixels`."""


@dataclass(frozen=True)
class EncoderUnderTest:
    """An encoder with its name and hashes.

    Attributes:
        name: the user's name for it, safe as a file name.
        sha256: hash of everything that determines its results.
        image_tower_sha256: hash of everything that determines its image features; None for a text encoder.
        preparation: of its pictures; None for a text encoder.
        folder: the folder that it was loaded from, if it is an encoder of this project.
        precision: of its towers; the hashes of those that are not in float32 change with it.
    """

    name: str
    encoder: TextEncoder
    sha256: str
    image_tower_sha256: str | None = None
    preparation: Preparation | None = None
    folder: Path | None = None
    precision: str = "fp32"

    @property
    def device(self) -> str:
        """The device that embeds and compares; the CPU for encoders that have none."""
        return str(getattr(self.encoder, "device", "cpu"))


def raw_encoder(under_test: EncoderUnderTest) -> RawEncoder:
    """The encoder, if it also returns features that are not normalised."""
    if not isinstance(under_test.encoder, RawEncoder):
        raise InputError(f"encoder '{under_test.name}' only returns unit features: choose one of open_clip")
    return under_test.encoder


@dataclass(frozen=True)
class ShownGain:
    """How much better than the base an encoder is on the primary metric, with the 95% interval of the difference.

    Attributes:
        wanted: number of queries or pictures that show it with a power of 80% if it is the truth; 0 without a gain.
    """

    value: float
    low: float
    high: float
    wanted: int

    def __str__(self) -> str:
        """The gain in points."""
        return f"{100 * self.value:+.1f} [{100 * self.low:+.1f}, {100 * self.high:+.1f}]"


@dataclass(frozen=True)
class HalfScores:
    """Metrics of an encoder by name, higher being better, on two halves of the validation pictures.

    Attributes:
        chosen: on the half that a search chooses by.
        shown: on the other half. It chose nothing, so that the luck of the choice is not in it.
        gain: on that half.
    """

    chosen: dict[str, float]
    shown: dict[str, float]
    gain: ShownGain
