"""The contract of a source of images for an index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from components.core.compute.metrics import Features, Indices
from components.core.settings import Prepare
from components.core.system.errors import InputError
from components.data.row_fields import RowFields
from components.encoders.under_test import EncoderUnderTest


@dataclass(frozen=True)
class ImageBlock:
    """Some images of a source.

    Attributes:
        rows: the known columns of `components.serving.index.columns.OWN`, and further ones.
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
        notes: files left out before any picture is decoded, one line for each reason.
    """

    image_tower_sha256: str
    encoder: str
    dim: int
    total: int | None
    blocks: Callable[[], Iterator[ImageBlock]]
    notes: tuple[str, ...] = ()


class ImageSource(NamedTuple):
    """A kind of source: whether a user's path or pattern is one, and its opening.

    It is opened with the encoder that embeds its pictures or computed its vectors. Of the settings, `text`, `item` and
    `image` name the fields that are read, and bounds limit the files that are opened.
    """

    fits: Callable[[str], bool]
    open: Callable[[str, EncoderUnderTest | None, Prepare], Opened]


def fields_of(settings: Prepare) -> RowFields:
    """The fields of rows that may lack a caption, and may have any split."""
    return replace(RowFields.of(settings), is_lenient=True)


def tower_of(encoder: EncoderUnderTest | None, why: str) -> tuple[EncoderUnderTest, str, int]:
    """The encoder, the hash of its image tower, and the length of its vectors."""
    if encoder is None:
        raise InputError(f"--encoder is missing: {why}")
    if encoder.image_tower_sha256 is None:
        raise InputError(f"--encoder '{encoder.name}' has no image tower: give one that embeds images")
    return encoder, encoder.image_tower_sha256, encoder.encoder.embed_texts(["a picture"]).shape[1]
