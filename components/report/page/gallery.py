"""Queries and their paraphrases with the images that each encoder finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from components.core.errors import InputError
from components.core.metrics import average_overlap
from components.core.settings import Compare, Settings
from components.evaluation.results import Folders
from components.report.comparison import Comparison, best_challenger
from components.report.page.retrieved import Lists, Picture, Retrieved, read_pictures


@dataclass(frozen=True)
class Shot:
    """One retrieved image: its row in the gallery, whether it is the gold one, whether both lists have it."""

    row: int
    gold: bool
    shared: bool


@dataclass(frozen=True)
class Side:
    """What one encoder finds for a query and for its paraphrase, and the AO of the full lists."""

    encoder: str
    overlap: float
    query: tuple[Shot, ...]
    paraphrase: tuple[Shot, ...]


@dataclass(frozen=True)
class Example:
    """One query of the gallery.

    Attributes:
        gain: the challenger's AO less the reference's.
        place: where it is among all queries in the order of their gains.
    """

    query: str
    paraphrase: str
    tier: str
    gold_row: int
    gain: float
    place: str
    sides: tuple[Side, ...]


@dataclass(frozen=True)
class Gallery:
    """The chosen queries, the pictures they need by gallery row, and how they were chosen."""

    examples: Sequence[Example] = ()
    pictures: Mapping[int, Picture] = field(default_factory=dict)
    challenger: str = ""
    depth: int = 0


def build_gallery(settings: Settings, comparison: Comparison, retrieved: Retrieved, folders: Folders) -> Gallery:
    """The gallery of all encoders; empty when the evaluation kept no rankings.

    Raises:
        InputError: the rankings do not fit the settings, or an image cannot be decoded.
    """
    if not retrieved.lists:
        return Gallery()
    challenger = best_challenger(comparison, settings.promote.primary)
    chosen = examples(retrieved, challenger, settings.compare)
    shown = {shot.row for entry in chosen for side in entry.sides for shot in (*side.query, *side.paraphrase)}
    pictures = read_pictures(folders.test_pairs, shown | {entry.gold_row for entry in chosen})
    return Gallery(chosen, pictures, challenger, retrieved.lists[0].depth)


def examples(retrieved: Retrieved, challenger: str, settings: Compare) -> list[Example]:
    """Choose queries by their gain in AO and collect what every encoder finds for them.

    Args:
        retrieved: the lists of all encoders.
        challenger: the encoder whose gain over the reference orders the queries.
        settings: how many queries, and how many images per list.

    Raises:
        InputError: the lists are shorter than the settings ask.
    """
    lists, queries, gold = retrieved.lists, retrieved.queries, retrieved.gold
    if any(found.depth < settings.gallery_top for found in lists):
        raise InputError("params.yaml: compare.gallery_top exceeds the largest of evaluate.ks: lower it")
    overlaps = {found.encoder: found.overlaps() for found in lists}
    gains = overlaps[challenger] - overlaps[lists[0].encoder]
    order = np.argsort(-gains, kind="stable")
    return [
        Example(
            query=queries[row]["query"],
            paraphrase=queries[row]["paraphrase"],
            tier=queries[row]["tier"],
            gold_row=gold[row],
            gain=float(gains[row]),
            place=place_name(place, len(order)),
            sides=tuple(_side(found, row, gold[row], settings.gallery_top) for found in lists),
        )
        for place in spread(len(order), settings.gallery_queries)
        for row in [int(order[place])]
    ]


def spread(queries: int, count: int) -> list[int]:
    """`count` evenly spaced places in the order of `queries` queries; the first, the median and the last among them."""
    places = np.linspace(0, queries - 1, min(count, queries)).round().astype(int).tolist()
    return sorted({*places, (queries - 1) // 2} if count > 2 else {*places})


def place_name(place: int, queries: int) -> str:
    """What to call a place in the order of gains."""
    names = {(queries - 1) // 2: "median", queries - 1: "largest loss", 0: "largest gain"}
    return f"{names.get(place, f'number {place + 1:,}')} of {queries:,} queries"


def _side(lists: Lists, row: int, gold: int, top: int) -> Side:
    query, paraphrase = lists.query[row], lists.paraphrase[row]
    shared = set(query[:top].tolist()) & set(paraphrase[:top].tolist())

    def shots(images: npt.NDArray[Any]) -> tuple[Shot, ...]:
        return tuple(Shot(image, image == gold, image in shared) for image in images[:top].tolist())

    overlap = float(average_overlap(query[None], paraphrase[None], lists.depth)[0])
    return Side(lists.encoder, overlap, shots(query), shots(paraphrase))
