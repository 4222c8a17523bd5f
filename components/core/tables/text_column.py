"""A sequence of strings in one Arrow column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_BLOCK = 10_000


class TextColumn(Sequence[str]):
    """Texts that take only the memory of their letters; a list of strings takes 50 bytes more for each.

    >>> names = TextColumn(["ape", "bee", "ape"])
    >>> names[1], list(names.places(["cat", "ape"]))
    ('bee', [-1, 0])
    """

    def __init__(self, texts: Any) -> None:
        column = texts.arrow if isinstance(texts, TextColumn) else texts
        if not isinstance(column, pa.ChunkedArray | pa.Array):
            column = pa.array(column, pa.large_string())
        whole = column.cast(pa.large_string())
        self.arrow: pa.Array = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole

    def __len__(self) -> int:
        """The number of texts."""
        return len(self.arrow)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> TextColumn: ...

    def __getitem__(self, place: int | slice) -> str | TextColumn:
        """A text, or a part of the column."""
        part = self.arrow[place]
        return TextColumn(part) if isinstance(place, slice) else str(part.as_py())

    def __iter__(self) -> Iterator[str]:
        """The texts in order; only a block of them are Python strings at a time."""
        for start in range(0, len(self), _BLOCK):
            yield from self.arrow.slice(start, _BLOCK).to_pylist()

    def places(self, texts: Iterable[str]) -> npt.NDArray[np.int64]:
        """The first row of each of `texts` in this column, or -1."""
        rows = pc.index_in(TextColumn(texts).arrow, value_set=self.arrow)
        return np.asarray(pc.fill_null(rows, -1).to_numpy(zero_copy_only=False), dtype=np.int64)
