"""Pairs from a retrieval product's own log: a query, the image that was clicked, and perhaps a weight and a split.

`prepare.folder` holds the images and `queries.tsv`, `.csv`, `.jsonl` or `.parquet`, where the weight, such as a number
of clicks, may also be called clicks; a line without one counts as one click. Lines of the same query and image are one
pair, whose weight is the sum of theirs, in whatever order the log has them.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import replace
from math import fsum
from pathlib import Path
from typing import Any

from components.core.errors import InputError
from components.core.settings import Prepare
from components.data.listed_images import listed_source
from components.data.listing import Line, Listing, checked_line, image_folder
from components.data.row_files import RowFiles, texts_of
from components.data.splits import split_said

QUERIES = "queries.tsv"
_FILES = RowFiles(
    files=(QUERIES, "queries.csv", "queries.jsonl", "queries.parquet"),
    required=("query", "image"),
    optional=("weight", "split"),
    names={"clicks": "weight"},
    text="query",
    texts="queries",
)
_HOW = "write one line for each click, query<TAB>image, or for each query and image with a column weight"
_HEAVIEST = 1e300
"""So that no sum of weights leaves the range of numbers."""


def read_listing(settings: Prepare) -> Listing:
    """The log's queries and images, each pair once.

    Raises:
        InputError: the folder or the file is missing, there are several, it is damaged, no UTF-8, without the columns
            query and image or with one of them twice; or a line has more or fewer fields than columns, a query that is
            empty or too long, or a weight that is no number above zero; the message names the line.
    """
    folder = image_folder(settings)
    file = _FILES.only(folder, _HOW)
    first: dict[tuple[str, str, str], Line] = {}
    weights: defaultdict[tuple[str, str, str], array[float]] = defaultdict(lambda: array("d"))
    for place, row in _FILES.rows(file):
        image, query = texts_of(file, place, row, "image", "query")
        split = split_said(f"{file}: {place}", row.get("split"))
        line = checked_line(file, Line(place, image, query, split=split), settings)
        key = line.image, line.caption, line.split
        first.setdefault(key, line)
        weights[key].append(_weight(file, place, row.get("weight")))
    lines = [replace(first[key], weight=fsum(weights[key])) for key in sorted(first)]
    return Listing(file, folder, lines)


def _weight(file: Path, place: str, told: Any) -> float:
    if told is None or told == "":
        return 1.0
    try:
        weight = float("nan" if isinstance(told, bool) else told)
    except (TypeError, ValueError, OverflowError):
        weight = float("nan")
    if not 0 < weight <= _HEAVIEST:
        raise InputError(f"{file}: {place} has weight '{str(told)[:40]}': write a number above 0, or nothing for 1")
    return weight


SOURCE = listed_source(read_listing, _FILES.find, QUERIES, _HOW)
