"""`ImageIndex`: searches an index with the vectors of an encoder, and returns rows and pictures."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from components.benchmarks.scoring.encoding.context import EncoderUnderTest
from components.core.compute.metrics import Features, Indices
from components.core.pictures.shards.listing import is_remote
from components.core.pictures.stored_pictures import PICTURE, Pictures, is_picture, place_of
from components.core.system.errors import InputError
from components.core.system.traces import span
from components.index.facts import BUILD_AGAIN, EXACT, KINDS, Facts, read_facts, refuse_link, structure_file
from components.index.rows import Rows
from components.index.search import ApproximateSearch, Found, nothing, search_exact
from components.index.vectors import Vectors

Filter = npt.NDArray[np.bool_] | npt.NDArray[np.int64] | Sequence[int]
"""The rows to search: a boolean for every row, or row numbers."""
_SHOWN = 12
_CAPTIONS = 1000


class ImageIndex:
    """An opened index; rows that other processes append later are not visible in it.

    Examples:
        >>> index = ImageIndex.open(Path("index"))  # doctest: +SKIP
        >>> index.accept(under_test)  # doctest: +SKIP
        >>> found = index.search(under_test.encoder.embed_texts(["a dog"]), 10)  # doctest: +SKIP
        >>> index.rows(found.rows[0])["caption"].to_pylist()  # doctest: +SKIP

    """

    def __init__(self, folder: Path, facts: Facts) -> None:
        self.folder, self.facts = folder, facts
        self.vectors = Vectors.open(folder, facts)
        self._rows = Rows.open(folder, facts)
        self._approximate = _approximate(folder, facts, self.vectors)

    @staticmethod
    def open(folder: Path) -> ImageIndex:
        """Open the index in a folder, memory-mapped; only `cliptune index check` compares the hashes of its files."""
        facts = read_facts(folder)
        try:
            return ImageIndex(folder, facts)
        except InputError:
            # A process that appends removes the previous file of approximate search.
            current = read_facts(folder)
            if current == facts:
                raise
            return ImageIndex(folder, current)

    def to(self, device: str) -> ImageIndex:
        """Search exactly on this device; approximate search stays on the CPU. Returns the index."""
        if self._approximate is None:
            self.vectors.to(device)
        return self

    def __len__(self) -> int:
        return self.facts.rows

    @property
    def schema(self) -> pa.Schema:
        return self._rows.schema

    def accept(self, encoder: EncoderUnderTest) -> None:
        """Check that an encoder has the image tower of the index."""
        accept_tower(self.facts, self.folder, encoder)

    def search(self, vectors: npt.ArrayLike, k: int, rows: Filter | None = None) -> Found:
        """Cosines and numbers `[q, k]` of the images most similar to each of the vectors `[q, dim]`, the best first.

        Ties go to the earlier row; where there are fewer than k images, minus infinity and -1.

        Args:
            vectors: of texts or images by an accepted encoder, of any length.
        """
        queries = self._queries(vectors)
        with span("index.search", images=len(self), queries=len(queries), k=k):
            return self._search(queries, k, rows)

    def _search(self, queries: Features, k: int, rows: Filter | None) -> Found:
        if k < 1:
            raise InputError(f"cannot search for {k} images: request 1 or more")
        chosen = None if rows is None else self._chosen(rows)
        if not len(queries) or (chosen is not None and not len(chosen)):
            return nothing(len(queries), k)
        return self.search_unit(queries, k, self.facts.effort, chosen)

    def search_unit(self, queries: Features, k: int, effort: int, rows: Indices | None = None) -> Found:
        """`search` for unit vectors and ascending row numbers, with an effort of approximate search."""
        if self._approximate is None:
            return search_exact(self.vectors, queries, k, rows)
        return self._approximate.search(queries, k, effort, rows)

    def rows(self, numbers: npt.ArrayLike) -> pa.Table:
        """Rows by number, in the given order: image_id, caption, name, file, position, size and further columns."""
        return self._rows.take(self._numbers(numbers))

    def column(self, name: str) -> pa.ChunkedArray:
        """One column of all rows, for filters."""
        return self._rows.column(name)

    def vector(self, numbers: npt.ArrayLike) -> Features:
        """Unit vectors `[n, dim]` of rows, for searches by image."""
        return self.vectors.take(self._numbers(numbers))

    def picture(self, row: int) -> bytes:
        """The encoded picture of a row, read from its file or shard."""
        (indexed,) = self.rows([row]).to_pylist()
        with Pictures() as pictures:
            return picture_of(indexed, row, pictures)

    def image_keys(self) -> npt.NDArray[np.uint64]:
        """64 bits of each row's image id, for comparisons."""
        return self._rows.keys()

    @cached_property
    def captions(self) -> list[str]:
        """Up to a thousand different captions, spread over the index."""
        looked_at = spread(len(self), 4 * _CAPTIONS)
        column = self.rows(looked_at)["caption"].drop_null().unique()
        if len(column) < _CAPTIONS // 10 and len(looked_at) < len(self):
            # Few images have a caption: read all of them.
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
            raise InputError(f"{self.folder} has rows 0 to {len(self) - 1}, not {found.min()} to {found.max()}")
        return found


def spread(count: int, most: int) -> Indices:
    """Up to `most` evenly spaced numbers from 0 to `count`, ascending."""
    return np.unique(np.linspace(0, max(0, count - 1), min(most, count), dtype=np.int64))


def accept_tower(facts: Facts, folder: Path, encoder: EncoderUnderTest) -> None:
    """See `ImageIndex.accept`."""
    tower = encoder.image_tower_sha256
    if tower == facts.image_tower_sha256:
        return
    index = f"{folder} was built with image tower {facts.image_tower_sha256[:_SHOWN]} (of '{facts.encoder}')"
    fix = f"choose an encoder trained from '{facts.encoder}', or build an index with --encoder {encoder.name}"
    if tower is None:
        raise InputError(f"{index}, and encoder '{encoder.name}' has no image tower: {fix}")
    raise InputError(f"{index}, encoder '{encoder.name}' has image tower {tower[:_SHOWN]}: {fix}")


def picture_of(row: dict[str, Any], number: int, pictures: Pictures) -> bytes:
    """The encoded picture of a row of an index; raises as `ImageIndex.picture`."""
    if not is_picture({"image": None, **row}):
        raise InputError(f"row {number} ('{row['name']}') has only a vector, its picture was not stored")
    try:
        _refuse_odd(row)
        return pictures.one({"image": None} | {name: row[name] for name in PICTURE if name != "image"})
    except InputError:
        raise InputError(
            f"{place_of(row)} (row {number}) is missing, or is not the picture that was indexed: put it back, or "
            f"{BUILD_AGAIN}"
        ) from None


def _refuse_odd(row: dict[str, Any]) -> None:
    """Reject devices, pipes and very large files before they are read."""
    # Most bytes of a picture, as in a shard.
    if not 0 < row["size"] <= (64 << 20) or (row["position"] or 0) < 0:
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


def _approximate(folder: Path, facts: Facts, vectors: Vectors) -> ApproximateSearch | None:
    if facts.kind not in KINDS:
        raise InputError(
            f"{folder} has kind '{facts.kind}', which this version cannot search: run "
            f"`cliptune index build <new folder> --from {folder} --encoder {facts.encoder}`"
        )
    structure = facts.structure
    if (facts.kind == EXACT) != (structure is None):
        raise InputError(f"{folder}: index.json has kind '{facts.kind}' without the file of this kind: {BUILD_AGAIN}")
    if structure is None:
        return None
    path = structure_file(folder, structure.number)
    refuse_link(path)
    if not path.is_file() or path.stat().st_size != structure.bytes:
        raise InputError(f"{path} is missing or has another size: {BUILD_AGAIN}")
    return ApproximateSearch(path, vectors)
