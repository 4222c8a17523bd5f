"""What a kind of search promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from components.core.metrics import Features, Indices
from components.index.exact_search import Found
from components.index.vectors import Vectors


class Searcher(Protocol):
    """Searches one index; several threads may ask it at a time."""

    def search(self, queries: Features, k: int, effort: int, rows: Indices | None = None) -> Found:
        """The k best rows for each of the unit `queries` `[queries, dim]`.

        Args:
            effort: one of the kind's `efforts`; without meaning where search is exact.
            rows: numbers of the rows to search among, ascending; all where not given.
        """


@dataclass(frozen=True)
class Kind:
    """A kind of search.

    Attributes:
        open: the searcher of an index's vectors and of the file that `write` made.
        bytes_per_vector: beside the vector itself, which every index keeps, for vectors of so many numbers.
        write: makes that file from the vectors; from those of the file before and, from row `first` on, the new ones
            where there is one. None for a kind that needs none, whose search is exact.
        efforts: how far may be searched, ascending.
        auto_from: rows from which `auto` takes this kind; None for never.
        require: raises `InputError` where what the kind needs is not installed, or so few rows are too few for it.
    """

    open: Callable[[Path | None, Vectors], Searcher]
    bytes_per_vector: Callable[[int], int]
    write: Callable[[Path, Vectors, Path | None, int], None] | None = None
    efforts: tuple[int, ...] = ()
    auto_from: int | None = None
    require: Callable[[int], None] = lambda _rows: None
