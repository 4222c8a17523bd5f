"""`ImageIndex`, for programs: which encoder may ask, what it finds, and the rows and pictures of that."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from components.benchmarks.encoding.context import EncoderUnderTest
from components.core.errors import InputError
from components.core.metrics import Features, Indices
from components.core.pictures import PICTURE, Pictures, is_picture, place_of
from components.core.shards.listing import is_remote
from components.index.exact_search import Found, nothing
from components.index.facts import BUILD_AGAIN, Facts, read_facts, refuse_link, structure_file
from components.index.kinds import find_kind
from components.index.kinds.kind import Searcher
from components.index.rows import Rows
from components.index.vectors import Vectors

Filter = npt.NDArray[np.bool_] | npt.NDArray[np.int64] | Sequence[int]
"""Which rows to search among: a mark for every row, or row numbers."""
_SHOWN = 12
_LARGEST = 64 << 20
"""Bytes of a picture, as of one in a shard."""
_CAPTIONS = 1000


class ImageIndex:
    """An opened index; it stays as it was opened while others append to it.

    >>> index = ImageIndex.open(Path("index"))  # doctest: +SKIP
    >>> index.accept(under_test)  # doctest: +SKIP
    >>> found = index.search(under_test.encoder.embed_texts(["a dog"]), 10)  # doctest: +SKIP
    >>> index.rows(found.rows[0])["caption"].to_pylist()  # doctest: +SKIP

    Attributes:
        folder: where it lies.
        facts: what its `index.json` says.
        vectors: of all rows.
    """

    def __init__(self, folder: Path, facts: Facts) -> None:
        self.folder, self.facts = folder, facts
        self.vectors = Vectors.open(folder, facts)
        self._rows = Rows.open(folder, facts)
        self.searcher: Searcher = find_kind(facts.kind).open(_structure(folder, facts), self.vectors)

    @staticmethod
    def open(folder: Path) -> ImageIndex:
        """Open the index in a folder, memory-mapped; its files' hashes are left to `cliptune index check`.

        Raises:
            InputError: there is none, or a file is missing, a link, damaged, or does not fit the others.
        """
        facts = read_facts(folder)
        try:
            return ImageIndex(folder, facts)
        except InputError:
            # Whoever appends removes the file that was searched before.
            now = read_facts(folder)
            if now == facts:
                raise
            return ImageIndex(folder, now)

    def __len__(self) -> int:
        """Images of the index."""
        return self.facts.rows

    @property
    def schema(self) -> pa.Schema:
        """Columns of the rows."""
        return self._rows.schema

    def accept(self, encoder: EncoderUnderTest) -> None:
        """Let pass an encoder whose image tower made the index.

        Raises:
            InputError: its image tower is another, or it has none.
        """
        accept_tower(self.facts, self.folder, encoder)

    def search(self, vectors: npt.ArrayLike, k: int, rows: Filter | None = None) -> Found:
        """The k images most similar to each vector, the best first; ties go to the earlier row.

        Args:
            vectors: of texts or images by an accepted encoder, `[q, dim]`; of any length.
            k: images for each.
            rows: search among these only.

        Returns:
            Cosines and row numbers `[q, k]`; where there are fewer than k images, minus infinity and -1.

        Raises:
            InputError: the vectors have another width or are not finite, or the filter names rows that there are not.
        """
        queries = self._queries(vectors)
        if k < 1:
            raise InputError(f"{k} images cannot be searched: ask for 1 or more")
        chosen = None if rows is None else self._chosen(rows)
        if not len(queries) or (chosen is not None and not len(chosen)):
            return nothing(len(queries), k)
        return self.searcher.search(queries, k, self.facts.effort, chosen)

    def rows(self, numbers: npt.ArrayLike) -> pa.Table:
        """Rows by their numbers, in the order given: image_id, caption, name, file, position, size and further columns.

        Raises:
            InputError: there is no such row, or the file is damaged.
        """
        return self._rows.take(self._numbers(numbers))

    def column(self, name: str) -> pa.ChunkedArray:
        """One column of all rows, to make filters of.

        Raises:
            InputError: there is no such column, or the file is damaged.
        """
        return self._rows.column(name)

    def vector(self, numbers: npt.ArrayLike) -> Features:
        """Unit vectors `[n, dim]` of rows, to search with."""
        return self.vectors.take(self._numbers(numbers))

    def picture(self, row: int) -> bytes:
        """The encoded picture of a row, read from where it lies.

        Raises:
            InputError: it has none, or is not there or not the one that was indexed.
        """
        (found,) = self.rows([row]).to_pylist()
        with Pictures() as pictures:
            return picture_of(found, row, pictures)

    def image_keys(self) -> npt.NDArray[np.uint64]:
        """64 bits of each row's image id, to know images by."""
        return self._rows.keys()

    @cached_property
    def captions(self) -> list[str]:
        """Up to a thousand different captions, from all over the index."""
        looked_at = spread(len(self), 4 * _CAPTIONS)
        column = self.rows(looked_at)["caption"].drop_null().unique()
        if len(column) < _CAPTIONS // 10 and len(looked_at) < len(self):
            # So few images have one that all are looked through.
            column = self.column("caption").drop_null().unique()
        return [text for text in column.take(spread(len(column), _CAPTIONS)).to_pylist() if text.strip()]

    def _queries(self, vectors: npt.ArrayLike) -> Features:
        given = np.asarray(vectors, np.float32)
        if given.ndim != 2 or given.shape[1] != self.facts.dim:
            raise InputError(
                f"query vectors of shape {given.shape} do not fit {self.folder}, whose vectors have {self.facts.dim} "
                "numbers: give [queries, dim] of an encoder that it accepts"
            )
        norms = np.linalg.norm(given, axis=1, keepdims=True)
        if not np.isfinite(norms).all():
            raise InputError("a query vector is not finite: the encoder is damaged, or its text is")
        unit: Features = given / np.maximum(norms, 1e-12)
        return unit

    def _chosen(self, rows: Filter) -> Indices:
        given = np.asarray(rows)
        if given.dtype == np.bool_:
            if given.shape != (len(self),):
                raise InputError(f"a filter of {given.shape} marks does not fit the {len(self)} rows of {self.folder}")
            return np.flatnonzero(given)
        return np.unique(self._numbers(given))

    def _numbers(self, numbers: npt.ArrayLike) -> Indices:
        given = np.asarray(numbers)
        if given.size and given.dtype.kind not in "iu":
            raise InputError(f"row numbers are whole, not {given.dtype}")
        found: Indices = given.astype(np.int64).reshape(-1)
        if found.size and (found.min() < 0 or found.max() >= len(self)):
            raise InputError(
                f"{self.folder} has the rows 0 to {len(self) - 1}: {found.min()} to {found.max()} is asked"
            )
        return found


def spread(count: int, most: int) -> Indices:
    """Up to `most` numbers from 0 to `count`, from all over that range, ascending."""
    return np.unique(np.linspace(0, max(0, count - 1), min(most, count), dtype=np.int64))


def accept_tower(facts: Facts, folder: Path, encoder: EncoderUnderTest) -> None:
    """See `ImageIndex.accept`."""
    tower = encoder.image_tower_sha256
    if tower == facts.image_tower_sha256:
        return
    here = f"{folder} was made by image tower {facts.image_tower_sha256[:_SHOWN]} (of '{facts.encoder}')"
    fix = f"choose an encoder trained from '{facts.encoder}', or build an index with --encoder {encoder.name}"
    if tower is None:
        raise InputError(f"{here}, and encoder '{encoder.name}' has no image tower at all: {fix}")
    raise InputError(
        f"{here}, encoder '{encoder.name}' has image tower {tower[:_SHOWN]}, whose vectors are others: {fix}"
    )


def picture_of(row: dict[str, Any], number: int, pictures: Pictures) -> bytes:
    """The encoded picture of a row of an index; raises as `ImageIndex.picture`."""
    if not is_picture({"image": None, **row}):
        raise InputError(f"row {number} ('{row['name']}') is known by its vector alone: its picture lies nowhere")
    try:
        _refuse_odd(row)
        return pictures.one({"image": None} | {name: row[name] for name in PICTURE if name != "image"})
    except InputError:
        raise InputError(
            f"{place_of(row)} (row {number}) is not there, or not the picture that was indexed: put it back, or "
            f"{BUILD_AGAIN}"
        ) from None


def _refuse_odd(row: dict[str, Any]) -> None:
    """Refuse what no picture is, before it is read: a device or pipe, whose end never comes, or very many bytes."""
    if not 0 < row["size"] <= _LARGEST or (row["position"] or 0) < 0:
        raise InputError("out of bounds")
    if is_remote(row["file"]):
        return
    try:
        found = Path(row["file"]).stat()
    except (OSError, ValueError):
        raise InputError("not there") from None
    # In a Parquet file the position is a row.
    first = None if row["file"].endswith(".parquet") else row["position"]
    short = first is not None and first + row["size"] > found.st_size
    if not stat.S_ISREG(found.st_mode) or short or (row["position"] is None and found.st_size != row["size"]):
        raise InputError("another file")


def _structure(folder: Path, facts: Facts) -> Path | None:
    kind, told = find_kind(facts.kind), facts.structure
    if (kind.write is None) != (told is None):
        raise InputError(
            f"{folder}: index.json has kind '{facts.kind}' and not the file that it searches: {BUILD_AGAIN}"
        )
    if told is None:
        return None
    path = structure_file(folder, told.number)
    refuse_link(path)
    if not path.is_file() or path.stat().st_size != told.bytes:
        raise InputError(f"{path} is missing or not as long as it was: {BUILD_AGAIN}")
    return path
