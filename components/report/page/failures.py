"""Failures: queries for which the results of an encoder for query and paraphrase, or of two encoders, differ most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from components.core.compute.metrics import Reals, average_overlap
from components.evaluation.results import Folders
from components.report.page.retrieved import InlineImage, Lists, Retrieved, read_pictures

QUERIES, PICTURES = 120, 400
"""Limits of the page's size: listed queries, and their different images."""
DEPTH, SHOWN = 20, 5
"""Most ranks of a list that are compared, and that are shown as images."""
_SIDE = 96
"""Longest side of a thumbnail in pixels."""


@dataclass(frozen=True)
class FailureExplorer:
    """The content of the page's section `Failures`.

    Attributes:
        depth: ranks of the lists that are compared.
        top: ranks that are shown.
    """

    depth: int = 0
    top: int = 0
    total: int = 0
    rows: Sequence[int] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    pictures: Mapping[int, InlineImage] = field(default_factory=dict)


def build_explorer(retrieved: Retrieved, folders: Folders) -> FailureExplorer:
    """The failures of all encoders; empty if the evaluation kept no rankings.

    Raises:
        InputError: an image cannot be decoded.
    """
    if not retrieved.lists:
        return FailureExplorer()
    depth = min(DEPTH, *(lists.depth for lists in retrieved.lists))
    top = min(SHOWN, depth)
    rows = choose(retrieved, depth, top)
    shown = {image for row in rows for image in _pictures(retrieved, row, top)}
    return FailureExplorer(
        depth=depth,
        top=top,
        total=len(retrieved.queries),
        rows=rows,
        data=explorer_data(retrieved, rows, depth) | {"top": top},
        pictures=read_pictures(folders.test_pairs, shown, _SIDE),
    )


def overlaps(lists: Sequence[Lists], depth: int) -> list[Reals]:
    """AO@depth `[queries]` of each encoder's query and paraphrase, then of each encoder's and the reference's lists."""
    between_wordings = [average_overlap(encoder.query, encoder.paraphrase, depth) for encoder in lists]
    return between_wordings + [average_overlap(encoder.query, lists[0].query, depth) for encoder in lists[1:]]


def choose(retrieved: Retrieved, depth: int, top: int) -> list[int]:
    """Rows of the queries to list: for every pair of lists in turn the query that differs most, up to the limits."""
    rows: list[int] = []
    pictures: set[int] = set()
    for row in _in_turn([np.argsort(overlap, kind="stable") for overlap in overlaps(retrieved.lists, depth)]):
        wanted = pictures | _pictures(retrieved, row, top)
        if len(rows) == QUERIES or (rows and len(wanted) > PICTURES):
            break
        rows.append(row)
        pictures = wanted
    return rows


def explorer_data(retrieved: Retrieved, rows: Sequence[int], depth: int) -> dict[str, Any]:
    """The listed queries and every encoder's lists of them `[rows, depth]`, for the page's script."""
    return {
        "encoders": [lists.encoder for lists in retrieved.lists],
        "queries": [
            {key: retrieved.queries[row][key] for key in ("query", "paraphrase", "tier")}
            | {"gold": retrieved.gold[row]}
            for row in rows
        ],
        "lists": {
            lists.encoder: {
                "query": lists.query[list(rows), :depth].tolist(),
                "paraphrase": lists.paraphrase[list(rows), :depth].tolist(),
            }
            for lists in retrieved.lists
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
    lists = [ranks[row, :top] for encoder in retrieved.lists for ranks in (encoder.query, encoder.paraphrase)]
    return {int(image) for ranks in lists for image in ranks} | {retrieved.gold[row]}
