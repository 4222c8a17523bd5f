"""Pairs from the log of a search product: a query, the clicked image, and optionally a weight (or clicks) and a split.

Lines of the same query and image make one pair with the sum of their weights; a line without weight counts as one.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import replace
from math import fsum

from components.core.settings import Prepare
from components.data.listed_images import Listing, image_folder, listed_source
from components.data.row_fields import RowFields, listed_pairs
from components.data.row_files import IMAGES, RowFiles
from components.data.source import Pair, Unusable

QUERIES = "queries.tsv"
_FILES = RowFiles(
    names=("queries",), roles={"image": IMAGES, "weight": ("weight", "clicks")}, text="query", texts="queries"
)
_HOW = "write one line per click, query<TAB>image, or one per query and image with a column weight"


def read_listing(settings: Prepare) -> Listing:
    """The log's queries and images, each pair once."""
    folder = image_folder(settings)
    (file,) = _FILES.those(folder, _HOW, settings.list_bound)
    fields = RowFields.of(settings, ("query",))
    files = _FILES if settings.image is None else replace(_FILES, roles={**_FILES.roles, "image": (settings.image,)})
    rows = files.rows(file, fields.required())
    first: dict[tuple[str, str, str], Pair] = {}
    weights: defaultdict[tuple[str, str, str], array[float]] = defaultdict(lambda: array("d"))
    left_out = list[Unusable]()
    for one in listed_pairs(file, rows, fields, settings, is_weighted=True):
        if isinstance(one, Unusable):
            left_out.append(one)
            continue
        key = one.image.name, one.caption, one.split
        first.setdefault(key, one)
        weights[key].append(one.weight or 0.0)
    return folder, [*left_out, *(replace(first[key], weight=fsum(weights[key])) for key in sorted(first))]


SOURCE = listed_source(read_listing, _FILES.find, QUERIES, _HOW)
