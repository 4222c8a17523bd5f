"""Retrieved images of queries and their paraphrases: the ranked lists, the gallery of the page, and small pictures."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from components.core.compute.metrics import average_overlap
from components.core.pictures.rgb import open_picture, upright_jpeg
from components.core.pictures.stored_pictures import PICTURE, Pictures, is_picture
from components.core.settings import Compare, Settings
from components.core.system.errors import InputError
from components.core.tables.folders import benchmark_table
from components.core.tables.records import PAIRS, PARAPHRASE_QUERIES
from components.evaluation.benchmarks.project.rankings import PARAPHRASE_TOP, QUERY_TOP
from components.evaluation.report.comparison import Comparison, best_encoder
from components.evaluation.scoring.context import QUERIES_FILE
from components.evaluation.scoring.results import Folders

SIDE = 128
"""Longest side of a picture in pixels."""


class Lists(NamedTuple):
    """An encoder's top lists of queries and their paraphrases: rows of the test images `[queries, depth]`."""

    encoder: str
    query: npt.NDArray[Any]
    paraphrase: npt.NDArray[Any]


@dataclass(frozen=True)
class Retrieved:
    """The lists of all encoders, the reference first, and their queries.

    Attributes:
        lists: empty if the evaluation kept no rankings.
        gold: row of each query's image `[queries]`.
    """

    lists: Sequence[Lists] = ()
    queries: Sequence[Mapping[str, str]] = ()
    gold: Sequence[int] = ()


def read_retrieved(rankings: Mapping[str, Mapping[str, npt.NDArray[Any]]], folders: Folders) -> Retrieved:
    """The stored rankings and their queries."""
    stored = {encoder: named for encoder, named in rankings.items() if QUERY_TOP in named}
    lists = [Lists(encoder, named[QUERY_TOP], named[PARAPHRASE_TOP]) for encoder, named in stored.items()]
    if not lists:
        return Retrieved()
    images = PAIRS.read(folders.test_pairs, ["image_id"])["image_id"].to_pylist()
    gallery_rows = {image: row for row, image in enumerate(images)}
    queries = PARAPHRASE_QUERIES.read(benchmark_table(folders.evaluation, QUERIES_FILE)).to_pylist()
    for listed in lists:
        if len(listed.query) != len(queries):
            raise InputError(
                f"'{listed.encoder}' was evaluated on other queries: "
                f"run `dvc --wait-for-lock repro evaluate@{listed.encoder}`"
            )
    try:
        gold = [gallery_rows[query["image_id"]] for query in queries]
    except KeyError as error:
        raise InputError(
            f"{folders.evaluation / QUERIES_FILE} names image {error}, which is not in {folders.test_pairs}: "
            "run `dvc repro`"
        ) from None
    return Retrieved(lists, queries, gold)


def read_pictures(pairs_file: Path, rows: Iterable[int]) -> dict[int, tuple[str, str]]:
    """The images of `rows` as data URIs, at most `SIDE` pixels long, and their captions.

    If only the embedding of an image exists, its caption is drawn instead.
    """
    chosen = sorted(set(rows))
    images: dict[int, tuple[str, str]] = {}
    pairs = PAIRS.take(pairs_file, chosen, ["caption", *PICTURE])
    with Pictures() as pictures:
        encoded = [pictures.one(row) if is_picture(row) else None for row in pairs.to_pylist()]
    for row, image, caption in zip(chosen, encoded, pairs["caption"].to_pylist(), strict=True):
        try:
            images[row] = (_drawn(caption) if image is None else data_uri(image)), caption
        except ValueError as error:
            raise InputError(f"{pairs_file}: row {row} is not an image ({error}): run `dvc repro prepare`") from None
    return images


def _drawn(caption: str) -> str:
    """A square with the words of a caption as a data URI."""
    lines = wrap(caption, 18)[:6]
    spans = "".join(f'<tspan x="6" dy="16">{escape(line)}</tspan>' for line in lines)
    text = f'<text y="4" font-family="sans-serif" font-size="12" fill="#444">{spans}</text>'
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 128 128" width="{SIDE}" height="{SIDE}">'
    return "data:image/svg+xml," + quote(f'{frame}<rect width="128" height="128" fill="#eee"/>{text}</svg>')


def data_uri(image: bytes) -> str:
    """An encoded image as a data URI, upright and at most `SIDE` pixels long; a small PNG is unchanged."""
    with open_picture(image) as opened:
        is_small_png = opened.format == "PNG" and max(opened.size) <= SIDE
    kind, shown = ("png", image) if is_small_png else ("jpeg", upright_jpeg(image, SIDE))
    return f"data:image/{kind};base64,{base64.b64encode(shown).decode('ascii')}"


@dataclass(frozen=True)
class GalleryQuery:
    """A query of the gallery.

    Attributes:
        texts: its `query`, `paraphrase` and `tier`.
        gain: the challenger's AO minus the reference's; `place` is the query's rank by it.
        sides: of each encoder the first images of both lists, and the AO of the full lists.
    """

    texts: Mapping[str, str]
    gold_row: int
    gain: float
    place: str
    sides: Sequence[tuple[Lists, float]]


@dataclass(frozen=True)
class Gallery:
    """The chosen queries, their pictures by row, and the encoder whose gain orders them."""

    examples: Sequence[GalleryQuery] = ()
    pictures: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    challenger: str = ""
    depth: int = 0


def build_gallery(settings: Settings, comparison: Comparison, retrieved: Retrieved, folders: Folders) -> Gallery:
    """The gallery of all encoders; empty if the evaluation kept no rankings."""
    if not retrieved.lists:
        return Gallery()
    challenger = best_encoder(comparison, settings.promote.metric, challengers=True)
    chosen = examples(retrieved, challenger, settings.compare)
    shown = {int(row) for entry in chosen for side, _ in entry.sides for row in (*side.query, *side.paraphrase)}
    pictures = read_pictures(folders.test_pairs, shown | {entry.gold_row for entry in chosen})
    return Gallery(chosen, pictures, challenger, _depth(retrieved.lists[0]))


def examples(retrieved: Retrieved, challenger: str, settings: Compare) -> list[GalleryQuery]:
    """Queries at evenly spaced quantiles of the challenger's gain in AO, with each encoder's images."""
    lists, queries, gold = retrieved.lists, retrieved.queries, retrieved.gold
    top = settings.gallery_top
    if any(_depth(listed) < top for listed in lists):
        raise InputError("params.yaml: compare.gallery_top exceeds the largest of evaluate.top_k: lower it")
    overlaps = {one.encoder: average_overlap(one.query, one.paraphrase, _depth(one)) for one in lists}
    gains = overlaps[challenger] - overlaps[lists[0].encoder]
    order = np.argsort(-gains, kind="stable")
    chosen = []
    for place in spread(len(order), settings.gallery_queries):
        row = int(order[place])
        first = [Lists(name, query[row][:top], paraphrase[row][:top]) for name, query, paraphrase in lists]
        sides = [(side, float(overlaps[side.encoder][row])) for side in first]
        chosen.append(GalleryQuery(queries[row], gold[row], float(gains[row]), place_name(place, len(order)), sides))
    return chosen


def _depth(lists: Lists) -> int:
    return int(lists.query.shape[1])


def spread(queries: int, count: int) -> list[int]:
    """`count` evenly spaced places in the order of `queries` queries, among them the first, the median and the last."""
    places: list[int] = np.linspace(0, queries - 1, min(count, queries)).round().astype(int).tolist()
    if len(places) > 2:
        places[(len(places) - 1) // 2] = (queries - 1) // 2
    return places


def place_name(place: int, queries: int) -> str:
    """The name of a place in the order of gains."""
    names = {(queries - 1) // 2: "median", queries - 1: "largest loss", 0: "largest gain"}
    return f"{names.get(place, f'number {place + 1:,}')} of {queries:,} queries"
