"""What a source of images promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from components.benchmarks.encoding.context import EncoderUnderTest
from components.core.errors import InputError
from components.core.metrics import Features, Indices


@dataclass(frozen=True)
class Block:
    """Some images of a source.

    Attributes:
        where: names them in messages.
        rows: the columns of `components.index.rows.OWN` that are known of them, and further ones.
        vectors: those of some of the rows, by their numbers in the block `[n]`: unit vectors `[n, dim]`. Raises
            `InputError` where one cannot be had; asked once, and not for images that the index has already.
        unusable: why other pictures cannot be used.
    """

    where: str
    rows: pa.Table
    vectors: Callable[[Indices], Features]
    unusable: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opened:
    """A source that was looked at.

    Attributes:
        image_tower_sha256: the tower that makes or made its vectors.
        encoder: whose tower that is.
        dim: numbers of a vector.
        total: images, or None where only reading tells.
        blocks: reads them.
    """

    image_tower_sha256: str
    encoder: str
    dim: int
    total: int | None
    blocks: Callable[[], Iterator[Block]]


@dataclass(frozen=True)
class Source:
    """Where images come from.

    Attributes:
        fits: whether what a user gives, a path or a pattern, is one of this source.
        open: looks at it; with the encoder that embeds its pictures, or that made its vectors.
        general: whether much that is another source's fits as well; then the other is meant.
    """

    fits: Callable[[str], bool]
    open: Callable[[str, EncoderUnderTest | None], Opened]
    general: bool = False


def tower_of(encoder: EncoderUnderTest | None, why: str) -> tuple[EncoderUnderTest, str]:
    """The encoder and the hash of its image tower.

    Raises:
        InputError: there is none, which `why` says what for, or it has no image tower.
    """
    if encoder is None:
        raise InputError(f"--encoder is missing: {why}")
    if encoder.image_tower_sha256 is None:
        raise InputError(f"--encoder '{encoder.name}' has no image tower: give one that embeds images")
    return encoder, encoder.image_tower_sha256


def width_of(encoder: EncoderUnderTest) -> int:
    """Numbers of an encoder's vectors."""
    return int(encoder.encoder.embed_texts(["a picture"]).shape[1])
