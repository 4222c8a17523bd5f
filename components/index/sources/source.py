"""The contract of a source of images for an index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from components.benchmarks.scoring.encoding.context import EncoderUnderTest
from components.core.compute.metrics import Features, Indices
from components.core.system.errors import InputError


@dataclass(frozen=True)
class ImageBlock:
    """Some images of a source.

    Attributes:
        rows: the known columns of `components.index.rows.OWN`, and further ones.
        vectors: unit vectors `[n, dim]` of rows given by their numbers in the block `[n]`. Raises `InputError` if one
            cannot be computed; called once, without the images that the index has already.
        unusable: the reasons why other pictures cannot be used.
    """

    where: str
    rows: pa.Table
    vectors: Callable[[Indices], Features]
    unusable: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opened:
    """A source that was opened.

    Attributes:
        encoder: name of an encoder with the image tower.
        prepares: whether its pictures are embedded here.
        notes: files left out before any picture is decoded, one line for each reason.
    """

    image_tower_sha256: str
    encoder: str
    dim: int
    total: int | None
    blocks: Callable[[], Iterator[ImageBlock]]
    notes: tuple[str, ...] = ()
    prepares: bool = False


@dataclass(frozen=True)
class ImageSource:
    """A kind of source."""

    fits: Callable[[str], bool]
    """Whether a path or pattern given by a user is a source of this kind."""
    open: Callable[[str, EncoderUnderTest | None], Opened]
    """Opens it, with the encoder that embeds its pictures or computed its vectors."""


def tower_of(encoder: EncoderUnderTest | None, why: str) -> tuple[EncoderUnderTest, str]:
    """The encoder and the hash of its image tower."""
    if encoder is None:
        raise InputError(f"--encoder is missing: {why}")
    if encoder.image_tower_sha256 is None:
        raise InputError(f"--encoder '{encoder.name}' has no image tower: give one that embeds images")
    return encoder, encoder.image_tower_sha256


def dim_of(encoder: EncoderUnderTest) -> int:
    """Length of an encoder's vectors."""
    return int(encoder.encoder.embed_texts(["a picture"]).shape[1])
