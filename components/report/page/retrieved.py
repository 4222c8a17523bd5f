"""What every encoder found for queries and their paraphrases, and the images of it, small enough for a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any
from urllib.parse import quote

import numpy.typing as npt

from components.benchmarks.embedded.paraphrased_retrieval import FILE, PARAPHRASE_TOP, QUERY_TOP
from components.core.errors import InputError
from components.core.metrics import Reals, average_overlap
from components.core.pictures import PICTURE, Pictures, is_picture
from components.core.records import PAIRS, PARAPHRASE_QUERIES
from components.core.rgb import open_picture, rgb
from components.evaluation.results import Folders


@dataclass(frozen=True)
class Lists:
    """One encoder's top lists of all queries and of their paraphrases: gallery rows `[queries, depth]`."""

    encoder: str
    query: npt.NDArray[Any]
    paraphrase: npt.NDArray[Any]

    @staticmethod
    def of(encoder: str, rankings: Mapping[str, npt.NDArray[Any]]) -> Lists:
        """The two lists among an encoder's named rankings."""
        return Lists(encoder, rankings[QUERY_TOP], rankings[PARAPHRASE_TOP])

    @property
    def depth(self) -> int:
        """Length of the lists."""
        return int(self.query.shape[1])

    def overlaps(self) -> Reals:
        """AO of the full lists `[queries]`."""
        return average_overlap(self.query, self.paraphrase, self.depth)


@dataclass(frozen=True)
class Retrieved:
    """The lists of all encoders, the reference's first, with the queries they answer.

    Attributes:
        lists: empty when the evaluation kept no rankings.
        queries: rows of the paraphrase queries.
        gold: gallery row of each query's image `[queries]`.
    """

    lists: Sequence[Lists] = ()
    queries: Sequence[Mapping[str, str]] = ()
    gold: Sequence[int] = ()


def read_retrieved(rankings: Mapping[str, Mapping[str, npt.NDArray[Any]]], folders: Folders) -> Retrieved:
    """The stored rankings with the tables they are about.

    Raises:
        InputError: an encoder's lists are of another number of queries, or a query's image is not a test image.
    """
    lists = [Lists.of(encoder, found) for encoder, found in rankings.items() if QUERY_TOP in found]
    if not lists:
        return Retrieved()
    images = PAIRS.read(folders.test_pairs, ["image_id"])["image_id"].to_pylist()
    gallery_rows = {image: row for row, image in enumerate(images)}
    queries = PARAPHRASE_QUERIES.read(folders.evaluation / FILE).to_pylist()
    for found in lists:
        if len(found.query) != len(queries):
            raise InputError(
                f"'{found.encoder}' was evaluated on other queries: "
                f"run `python -m components.evaluation.evaluate --encoder {found.encoder}`"
            )
    try:
        gold = [gallery_rows[query["image_id"]] for query in queries]
    except KeyError as error:
        raise InputError(
            f"{folders.evaluation / FILE} names image {error}, not in {folders.test_pairs}: run `dvc repro`"
        ) from None
    return Retrieved(lists, queries, gold)


SIDE = 128
"""Pixels of a picture's longer side at most."""
_WEB_FORMATS = {"PNG", "JPEG", "WEBP", "GIF"}


@dataclass(frozen=True)
class Picture:
    """An image: its source as a data URI and its description."""

    src: str
    alt: str


def read_pictures(pairs_file: Path, rows: Iterable[int], side: int = SIDE) -> dict[int, Picture]:
    """The images of `rows` with their captions as description, `side` pixels long at most.

    Of an image that is known by its embedding alone, the caption is drawn.

    Raises:
        InputError: an image cannot be decoded.
    """
    chosen = sorted(set(rows))
    found: dict[int, Picture] = {}
    pairs = PAIRS.take(pairs_file, chosen, ["caption", *PICTURE])
    with Pictures() as pictures:
        encoded = [pictures.one(row) if is_picture(row) else None for row in pairs.to_pylist()]
    for row, image, caption in zip(chosen, encoded, pairs["caption"].to_pylist(), strict=True):
        try:
            found[row] = Picture(_drawn(caption, side) if image is None else data_uri(image, side), caption)
        except ValueError as error:
            raise InputError(f"{pairs_file}: row {row} holds no image ({error}): run `dvc repro prepare`") from None
    return found


def _drawn(caption: str, side: int) -> str:
    """A square with the words of a caption, as a data URI."""
    lines = wrap(caption, 18)[:6]
    spans = "".join(f'<tspan x="6" dy="16">{escape(line)}</tspan>' for line in lines)
    text = f'<text y="4" font-family="sans-serif" font-size="12" fill="#444">{spans}</text>'
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 128 128" width="{side}" height="{side}">'
    return "data:image/svg+xml," + quote(f'{frame}<rect width="128" height="128" fill="#eee"/>{text}</svg>')


def data_uri(image: bytes, side: int = SIDE) -> str:
    """An encoded image as a data URI, scaled down where it is longer than `side` pixels."""
    with open_picture(image) as opened:
        kind = opened.format or ""
        if max(opened.size) > side or kind not in _WEB_FORMATS:
            small = rgb(opened)
            small.thumbnail((side, side))
            stream = io.BytesIO()
            small.save(stream, "JPEG", quality=85)
            image, kind = stream.getvalue(), "JPEG"
    return f"data:image/{kind.lower()};base64,{base64.b64encode(image).decode('ascii')}"
