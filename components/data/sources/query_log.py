"""Pairs from the log of a search product: a query, the clicked image, and optionally a weight (or clicks) and a split.

Lines of the same query and image make one pair with the sum of their weights; a line without weight counts as one.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import replace
from math import fsum
from pathlib import Path
from typing import Any

from components.core.settings import Prepare
from components.core.system.errors import InputError
from components.data.listed_images import CaptionLine, Listing, checked_line, image_folder, listed_source
from components.data.row_files import RowFiles, texts_of
from components.data.source import split_of_word

QUERIES = "queries.tsv"
_FILES = RowFiles(
    files=(QUERIES, "queries.csv", "queries.jsonl", "queries.parquet"),
    required=("query", "image"),
    optional=("weight", "split"),
    names={"clicks": "weight"},
    text="query",
    texts="queries",
)
_HOW = "write one line per click, query<TAB>image, or one per query and image with a column weight"


def read_listing(settings: Prepare) -> Listing:
    """The log's queries and images, each pair once.

    Raises:
        InputError: the folder or the file is missing, as `RowFiles.only`, `RowFiles.rows` and `checked_caption`, or a
            weight is not a number above zero.
    """
    folder = image_folder(settings)
    file = _FILES.only(folder, _HOW, settings.list_bound)
    first: dict[tuple[str, str, str], CaptionLine] = {}
    weights: defaultdict[tuple[str, str, str], array[float]] = defaultdict(lambda: array("d"))
    for place, row in _FILES.rows(file):
        image, query = texts_of(file, place, row, "image", "query")
        split = split_of_word(f"{file}: {place}", row.get("split"))
        line = checked_line(file, CaptionLine(place, image, query, split=split), settings)
        key = line.image, line.caption, line.split
        first.setdefault(key, line)
        weights[key].append(_weight(file, place, row.get("weight")))
    lines = [replace(first[key], weight=fsum(weights[key])) for key in sorted(first)]
    return Listing(file, folder, lines)


def _weight(file: Path, place: str, value: Any) -> float:
    if value is None or value == "":
        return 1.0
    try:
        weight = float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError, OverflowError):
        weight = float("nan")
    # Sums of such weights stay finite.
    if not 0 < weight <= 1e300:
        raise InputError(f"{file}: {place} has weight '{str(value)[:40]}': write a number above 0, or nothing for 1")
    return weight


SOURCE = listed_source(read_listing, _FILES.find, QUERIES, _HOW)
