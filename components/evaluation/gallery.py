"""Queries and their paraphrases with the images that each encoder finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from components.errors import InputError
from components.evaluation.benchmarks.paraphrased_retrieval import FILE, PARAPHRASE_TOP, QUERY_TOP
from components.evaluation.comparison import Comparison, best_challenger
from components.evaluation.folders import Folders
from components.evaluation.metrics import Reals, average_overlap
from components.evaluation.pictures import Picture, read_pictures
from components.records import PAIRS, PARAPHRASE_QUERIES
from components.settings import Compare, Settings


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
class Gallery:
    """The chosen queries, the pictures they need by gallery row, and how they were chosen."""

    examples: Sequence[Example] = ()
    pictures: Mapping[int, Picture] = field(default_factory=dict)
    challenger: str = ""
    depth: int = 0


def build_gallery(
    settings: Settings,
    comparison: Comparison,
    rankings: Mapping[str, Mapping[str, npt.NDArray[Any]]],
    folders: Folders,
) -> Gallery:
    """The gallery of all encoders; empty when the evaluation kept no rankings.

    Raises:
        InputError: the rankings do not fit the settings or the tables.
    """
    lists = [Lists.of(encoder, found) for encoder, found in rankings.items() if QUERY_TOP in found]
    if not lists:
        return Gallery()
    gallery_rows = {image: row for row, image in enumerate(PAIRS.read(folders.test_pairs, ["id"])["id"].to_pylist())}
    queries = PARAPHRASE_QUERIES.read(folders.evaluation / FILE).to_pylist()
    gold = [gallery_rows.get(query["image_id"], -1) for query in queries]
    challenger = best_challenger(comparison, settings.promote.primary)
    chosen = examples(lists, queries, gold, challenger, settings.compare)
    shown = {shot.row for entry in chosen for side in entry.sides for shot in (*side.query, *side.paraphrase)}
    pictures = read_pictures(folders.test_pairs, shown | {entry.gold_row for entry in chosen})
    return Gallery(chosen, pictures, challenger, lists[0].depth)


def examples(
    lists: Sequence[Lists],
    queries: Sequence[Mapping[str, str]],
    gold: Sequence[int],
    challenger: str,
    settings: Compare,
) -> list[Example]:
    """Choose queries by their gain in AO and collect what every encoder finds for them.

    Args:
        lists: every encoder's, the reference first.
        queries: rows of the paraphrase queries.
        gold: gallery row of each query's image `[queries]`.
        challenger: the encoder whose gain over the reference orders the queries.
        settings: how many queries, and how many images per list.

    Raises:
        InputError: the lists are shorter than the settings ask, or of another number of queries.
    """
    for found in lists:
        if len(found.query) != len(queries):
            raise InputError(
                f"'{found.encoder}' was evaluated on other queries: "
                f"run `python -m components.evaluation.evaluate --encoder {found.encoder}`"
            )
        if found.depth < settings.gallery_top:
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
