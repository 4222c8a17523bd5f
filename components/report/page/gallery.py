"""Queries and their paraphrases with the images that each encoder finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from components.core.errors import InputError
from components.core.metrics import Reals, average_overlap
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
    """One query of the gallery; `gain` is the challenger's AO less the reference's."""

    query: str
    paraphrase: str
    tier: str
    gold_row: int
    gain: float
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
    return [
        Example(
            query=queries[row]["query"],
            paraphrase=queries[row]["paraphrase"],
            tier=queries[row]["tier"],
            gold_row=gold[row],
            gain=float(gains[row]),
            sides=tuple(_side(found, row, gold[row], settings.gallery_top) for found in lists),
        )
        for row in spread(gains, settings.gallery_queries)
    ]


def spread(gains: Reals, count: int) -> list[int]:
    """Rows at `count` evenly spaced quantiles of `gains`, the largest gain first; equals in row order."""
    order = np.argsort(-gains, kind="stable")
    places = np.unique(np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(int))
    return [int(row) for row in order[places]]


def _side(lists: Lists, row: int, gold: int, top: int) -> Side:
    query, paraphrase = lists.query[row], lists.paraphrase[row]
    shared = set(query[:top].tolist()) & set(paraphrase[:top].tolist())

    def shots(images: npt.NDArray[Any]) -> tuple[Shot, ...]:
        return tuple(Shot(image, image == gold, image in shared) for image in images[:top].tolist())

    overlap = float(average_overlap(query[None], paraphrase[None], lists.depth)[0])
    return Side(lists.encoder, overlap, shots(query), shots(paraphrase))
