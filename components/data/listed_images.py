"""Pairs of a folder whose images a file lists; sources that differ only by that file's format share what is here.

Of an image to test or to validate with, the first caption makes the pair; the other captions of a test image are
queries too. An image to train on makes a pair with each of its captions.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from components.core.ahead import mapped
from components.core.records import PARAPHRASE_QUERIES
from components.core.settings import Prepare, Settings
from components.data.listing import Line, Listing, share
from components.data.source import (
    Described,
    EvaluationTables,
    Pair,
    Source,
    Unusable,
    UnusableError,
    caption_queries,
    filled,
)

_MAX_PIXELS = 40_000_000
Read = Callable[[Prepare], Listing]


def listed_source(read: Read, find: Callable[[Path], str | None], file: str, how: str) -> Source:
    """A source of the images that `read` lists.

    Args:
        read: gives the listing of `prepare.folder`.
        find: tells whether a folder is such a source, see `Source`.
        file: what lists the images.
        how: how a user comes by it.
    """
    return Source(
        pairs=lambda settings: _pairs(settings, read(settings.prepare)),
        evaluation=lambda settings, test: _evaluation(test, read(settings.prepare)),
        describe=lambda settings: _describe(read(settings)),
        find=find,
        file=file,
        how=how,
    )


def _describe(listing: Listing) -> Described:
    captions: dict[str, Counter[str]] = {}
    for line in listing.lines:
        captions.setdefault(line.split or "train", Counter())[line.image] += 1
    names = [name for counted in captions.values() for name in counted]
    found = {name: path for name in names if (path := listing.find_image(name)) is not None}
    return Described(
        images={split: len(counted) for split, counted in captions.items()},
        captions={split: counted.total() for split, counted in captions.items()},
        most_captions=max((max(counted.values()) for counted in captions.values()), default=0),
        pictures=[(str(path), path.read_bytes) for path in found.values()],
        missing=len(names) - len(found),
        paraphrases=sum(bool(line.paraphrase) for line in listing.lines),
    )


def read_picture(path: Path) -> bytes:
    """The bytes of an image file, of which all pixels can be decoded.

    Raises:
        UnusableError: they cannot, or are too many.
    """
    return checked_picture(path.read_bytes(), str(path))


def checked_picture(raw: bytes, name: str) -> bytes:
    """The bytes of an image, of which all pixels can be decoded; `name` stands in messages.

    Raises:
        UnusableError: they cannot, or are too many.
    """
    try:
        with Image.open(io.BytesIO(raw)) as image:
            if image.width * image.height > _MAX_PIXELS:
                raise UnusableError(f"{name} has {image.width}x{image.height} pixels: shrink it below {_MAX_PIXELS}")
            image.verify()
        # `verify` does not see that a JPEG is cut off; reading all of one at an eighth of its size costs little.
        with Image.open(io.BytesIO(raw)) as image:
            image.draft("RGB", (1, 1))
            image.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        # Pillow would name the address of the buffer.
        reason = "no known format" if isinstance(error, UnidentifiedImageError) else error
        raise UnusableError(f"{name} is no readable image ({reason}): replace or remove it") from None
    return raw


def _pairs(settings: Settings, listing: Listing) -> Iterator[Pair | Unusable]:
    shared = share(listing, settings.prepare.counts, settings.world.seed)
    for split in ("test", "val"):
        yield from _captioned(split, [lines[:1] for lines in shared[split]], listing)
    left = settings.prepare.counts.train
    for one in _captioned("train", shared["train"], listing):
        yield one
        left -= isinstance(one, Pair)
        if not left:
            return


def _captioned(split: str, images: list[list[Line]], listing: Listing) -> Iterator[Pair | Unusable]:
    """Each image with each of its captions; cores read and decode some images ahead."""

    def read(lines: list[Line]) -> bytes | Unusable:
        try:
            return _read_image(lines[0], listing)
        except UnusableError as error:
            return Unusable(str(error))

    for lines, image in mapped(read, images):
        if isinstance(image, Unusable):
            yield image
            continue
        for line in lines:
            yield Pair(split, image, line.caption, name=_name(line, listing))


def _read_image(line: Line, listing: Listing) -> bytes:
    path = listing.find_image(line.image)
    if path is None:
        raise UnusableError(
            f"{listing.file}: {line.place} names {line.image}, which is not in {listing.folder}: add or remove it"
        )
    return read_picture(path)


def _name(line: Line, listing: Listing) -> str:
    """The image's path from the folder on, whose own name may say whose images these are."""
    return f"{listing.folder.name}/{line.image}"


def _evaluation(test: list[Pair], listing: Listing) -> EvaluationTables:
    """Every caption of the test images as a query, and the paraphrases that people wrote of them."""
    lines_of = listing.by_image({len(pair.image) for pair in test})
    lines = [(pair.image_id, line) for pair in test for line in lines_of[pair.image_id]]
    tables = caption_queries((image, line.caption) for image, line in lines)
    rows = [(image, line.caption, line.paraphrase, "all", "image") for image, line in lines if line.paraphrase]
    return tables | {"paraphrase_queries": filled(PARAPHRASE_QUERIES, rows)} if rows else tables
