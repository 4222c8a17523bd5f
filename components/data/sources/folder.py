"""Pairs from a folder on disk: images, and `captions.tsv` with the columns image, caption and perhaps paraphrase.

Of an image to test or to validate with, the first caption makes the pair; the other captions of a test image are
queries too. An image to train on makes a pair with each of its captions.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from PIL import Image

from components.core.errors import InputError
from components.core.records import PARAPHRASE_QUERIES
from components.core.settings import Settings
from components.data.captions_file import NAME, Line, by_image, find_image, read_lines, share
from components.data.source import EvaluationTables, Pair, Source, caption_queries, filled

_MAX_PIXELS = 40_000_000


def _shared(settings: Settings) -> tuple[Path, dict[str, list[list[Line]]]]:
    path, lines = read_lines(settings.prepare)
    return path, share(path, lines, settings.prepare.counts, settings.world.seed)


def _read_image(line: Line, table: Path) -> bytes:
    path = find_image(table, line.image)
    if path is None:
        raise InputError(
            f"{table}: line {line.number} names {line.image}, which is not in {table.parent}: add or remove it"
        )
    return read_picture(path)


def read_picture(path: Path) -> bytes:
    """The bytes of an image file, of which all pixels can be decoded.

    Raises:
        InputError: they cannot, or are too many.
    """
    raw = path.read_bytes()
    try:
        with Image.open(io.BytesIO(raw)) as image:
            if image.width * image.height > _MAX_PIXELS:
                raise InputError(f"{path} has {image.width}x{image.height} pixels: shrink it below {_MAX_PIXELS}")
            image.verify()
        # `verify` does not see that a JPEG is cut off; reading all of one at an eighth of its size costs little.
        with Image.open(io.BytesIO(raw)) as image:
            image.draft("RGB", (1, 1))
            image.load()
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} is no readable image ({error}): replace or remove it") from None
    return raw


def _pairs(settings: Settings) -> Iterator[Pair]:
    table, shared = _shared(settings)
    for split in ("test", "val"):
        for lines in shared[split]:
            yield Pair(split, _read_image(lines[0], table), lines[0].caption, name=_name(lines[0], table))
    captions = chain.from_iterable(_captioned(lines, table) for lines in shared["train"])
    yield from islice(captions, settings.prepare.counts.train)


def _captioned(lines: list[Line], table: Path) -> Iterator[Pair]:
    """One image to train on with each of its captions."""
    raw = _read_image(lines[0], table)
    for line in lines:
        yield Pair("train", raw, line.caption, name=_name(line, table))


def _name(line: Line, table: Path) -> str:
    """The image's path from the folder on, whose own name may say whose images these are."""
    return f"{table.parent.name}/{line.image}"


def _evaluation(settings: Settings, test: list[Pair]) -> EvaluationTables:
    """Every caption of the test images as a query, and the paraphrases that people wrote of them."""
    table, every = read_lines(settings.prepare)
    lines_of = by_image(table, every, {len(pair.image) for pair in test})
    lines = [(pair.image_id, line) for pair in test for line in lines_of[pair.image_id]]
    tables = caption_queries((image, line.caption) for image, line in lines)
    rows = [(image, line.caption, line.paraphrase, "all", "image") for image, line in lines if line.paraphrase]
    return tables | {"paraphrase_queries": filled(PARAPHRASE_QUERIES, rows)} if rows else tables


SOURCE = Source(
    pairs=_pairs,
    evaluation=_evaluation,
    file=NAME,
    how="write one line for each caption: image<TAB>caption",
)
