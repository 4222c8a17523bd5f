"""Failure explorer: the queries in which an encoder's lists of query and paraphrase, or two encoders, differ most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from components.core.metrics import Reals, average_overlap
from components.evaluation.results import Folders
from components.report.page.retrieved import InlineImage, Lists, Retrieved, read_pictures

QUERIES, PICTURES = 120, 400
"""Limits of the page's size: queries that are listed, and different images that they show."""
DEPTH, SHOWN = 20, 5
"""Up to so many places of a list are compared, and so many are shown as images."""
_SIDE = 96
"""Pixels of a thumbnail."""


@dataclass(frozen=True)
class Explorer:
    """What the page's failure explorer is given.

    Attributes:
        depth: places of the lists that are compared.
        top: places that are shown.
        total: queries of the benchmark, of which `rows` are listed.
        rows: the listed queries' rows.
        data: encoders, queries and lists as the page's script reads them.
        pictures: gallery row -> thumbnail.
    """

    depth: int = 0
    top: int = 0
    total: int = 0
    rows: Sequence[int] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    pictures: Mapping[int, InlineImage] = field(default_factory=dict)


def build_explorer(retrieved: Retrieved, folders: Folders) -> Explorer:
    """The explorer of all encoders; empty when the evaluation kept no rankings.

    Raises:
        InputError: an image cannot be decoded.
    """
    if not retrieved.lists:
        return Explorer()
    depth = min(DEPTH, *(found.depth for found in retrieved.lists))
    top = min(SHOWN, depth)
    rows = choose(retrieved, depth, top)
    shown = {image for row in rows for image in _pictures(retrieved, row, top)}
    return Explorer(
        depth=depth,
        top=top,
        total=len(retrieved.queries),
        rows=rows,
        data=explorer_data(retrieved, rows, depth) | {"top": top},
        pictures=read_pictures(folders.test_pairs, shown, _SIDE),
    )


def overlaps(lists: Sequence[Lists], depth: int) -> list[Reals]:
    """AO@depth of all pairs of lists by which queries are chosen, `[queries]` each.

    First each encoder's lists of query and paraphrase, then each encoder's and the reference's lists of the query.
    """
    own = [average_overlap(found.query, found.paraphrase, depth) for found in lists]
    return own + [average_overlap(found.query, lists[0].query, depth) for found in lists[1:]]


def choose(retrieved: Retrieved, depth: int, top: int) -> list[int]:
    """Rows of the queries to list: of every pair of lists in turn the one that differs most, while there is room.

    Args:
        retrieved: the lists of all encoders.
        depth: places of the lists that are compared.
        top: places that are shown, which need pictures.
    """
    rows: list[int] = []
    pictures: set[int] = set()
    for row in _in_turn([np.argsort(found, kind="stable") for found in overlaps(retrieved.lists, depth)]):
        wanted = pictures | _pictures(retrieved, row, top)
        if len(rows) == QUERIES or (rows and len(wanted) > PICTURES):
            break
        rows.append(row)
        pictures = wanted
    return rows


def explorer_data(retrieved: Retrieved, rows: Sequence[int], depth: int) -> dict[str, Any]:
    """The listed queries and every encoder's lists of them `[rows, depth]`, for the page's script."""
    return {
        "encoders": [found.encoder for found in retrieved.lists],
        "queries": [
            {key: retrieved.queries[row][key] for key in ("query", "paraphrase", "tier")}
            | {"gold": retrieved.gold[row]}
            for row in rows
        ],
        "lists": {
            found.encoder: {
                "query": found.query[list(rows), :depth].tolist(),
                "paraphrase": found.paraphrase[list(rows), :depth].tolist(),
            }
            for found in retrieved.lists
        },
    }


def _in_turn(orders: Sequence[Any]) -> Iterator[int]:
    """The first of every order, then the second of every order, each number once."""
    seen: set[int] = set()
    for place in zip(*orders, strict=True):
        for row in map(int, place):
            if row not in seen:
                seen.add(row)
                yield row


def _pictures(retrieved: Retrieved, row: int, top: int) -> set[int]:
    lists = [ranks[row, :top] for found in retrieved.lists for ranks in (found.query, found.paraphrase)]
    return {int(image) for ranks in lists for image in ranks} | {retrieved.gold[row]}
