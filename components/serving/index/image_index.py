"""`ImageIndex`: searches an index with the vectors of an encoder, and returns rows and pictures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from components.core.compute.metrics import Features, Indices
from components.core.pictures.folder import PICTURE_BOUND
from components.core.pictures.stored_pictures import PICTURE, Pictures, is_picture, place_of
from components.core.system.errors import InputError
from components.core.system.user_files import Bound
from components.encoders.under_test import EncoderUnderTest
from components.serving.index.facts import BUILD_AGAIN, EXACT, Chunk, Facts, read_facts
from components.serving.traces import span

_SHOWN = 12


class Found(NamedTuple):
    """The best rows of each query, the best first.

    Attributes:
        scores: cosines `[queries, k]`; minus infinity where there are fewer than k rows.
        rows: their numbers `[queries, k]`; -1 where there are fewer than k rows.
    """

    scores: Features
    rows: Indices


class ImageIndex(ABC):
    """An opened index; rows that other processes add or remove later are not visible in it.

    Examples:
        >>> index = ImageIndex.open(Path("index"))  # doctest: +SKIP
        >>> index.accept(under_test)  # doctest: +SKIP
        >>> found = index.search(under_test.encoder.embed_texts(["a dog"]), 10)  # doctest: +SKIP
        >>> index.rows(found.rows[0])["caption"].to_pylist()  # doctest: +SKIP

    """

    schema: pa.Schema

    def __init__(self, folder: Path, facts: Facts) -> None:
        self.folder, self.facts = folder, facts

    @staticmethod
    def open(folder: Path) -> ImageIndex:
        """Open the index in a folder; raises `InputError` if it is damaged or of another format."""
        from components.serving.index.exact import ExactIndex
        from components.serving.index.lance import LanceIndex

        facts = read_facts(folder)
        return (ExactIndex if facts.kind == EXACT else LanceIndex)(folder, facts)

    def to(self, device: str) -> ImageIndex:
        """Search exactly on this device; LanceDB searches on the CPU. Returns the index."""
        return self

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def best(self, queries: Features, k: int, where: str | None) -> Found:
        """`search` for unit vectors."""

    @abstractmethod
    def take(self, numbers: Indices) -> Chunk:
        """Rows by number, in the given order, with their vectors."""

    @abstractmethod
    def column(self, name: str) -> pa.ChunkedArray:
        """One column of all rows, which `schema` names."""

    @abstractmethod
    def numbers(self, condition: str | None = None) -> Indices:
        """The numbers of all rows, or of those that fulfil a condition in SQL, ascending."""

    @abstractmethod
    def chunks(self) -> Iterator[Chunk]:
        """All rows, in parts."""

    @abstractmethod
    def add(self, chunks: Iterable[Chunk]) -> None:
        """Add rows to the files of the index; see `components.serving.index.building.append`."""

    @abstractmethod
    def remove(self, condition: str) -> None:
        """Remove rows from the files of the index; see `components.serving.index.building.remove`."""

    def accept(self, encoder: EncoderUnderTest) -> None:
        """Check that an encoder has the image tower of the index."""
        own, tower = self.facts, encoder.image_tower_sha256
        if tower != own.image_tower_sha256:
            has = "no image tower" if tower is None else f"image tower {tower[:_SHOWN]}"
            raise InputError(
                f"{self.folder} was built with image tower {own.image_tower_sha256[:_SHOWN]} (of '{own.encoder}'), "
                f"encoder '{encoder.name}' has {has}: choose an encoder trained from '{own.encoder}', or build an "
                f"index with --encoder {encoder.name}"
            )

    def search(self, vectors: npt.ArrayLike, k: int, where: str | None = None) -> Found:
        """Cosines and numbers `[q, k]` of the images most similar to each of the vectors `[q, dim]`, the best first.

        Where there are fewer than k images, the last are minus infinity and -1.

        Args:
            vectors: of texts or images by an accepted encoder, of any length.
            where: a condition in SQL about the columns, which the images fulfil.
        """
        queries = self._queries(vectors)
        if k < 1:
            raise InputError(f"cannot search for {k} images: request 1 or more")
        if not len(queries):
            return nothing(0, k)
        with span("index.search", images=len(self), queries=len(queries), k=k):
            return self.best(queries, k, where)

    def rows(self, numbers: npt.ArrayLike) -> pa.Table:
        """Rows by number, in the given order: image_id, caption, name, file, position, size and further columns."""
        return self.take(_whole(numbers))[0]

    def vector(self, numbers: npt.ArrayLike) -> Features:
        """Unit vectors `[n, dim]` of rows, for searches by image."""
        return self.take(_whole(numbers))[1]

    def picture(self, row: int, most: Bound = PICTURE_BOUND) -> bytes:
        """The encoded picture of a row, at most so large, read from its file or shard."""
        (indexed,) = self.rows([row]).to_pylist()
        if not is_picture({"image": None, **indexed}):
            raise InputError(f"row {row} ('{indexed['name']}') has only a vector, its picture was not stored")
        place = f"{place_of(indexed)} (row {row})"
        if indexed["size"] > most.bytes:
            raise InputError(f"{place} is too large: raise {most.setting}")
        try:
            with Pictures() as pictures:
                return pictures.one({"image": None} | {name: indexed[name] for name in PICTURE if name != "image"})
        except (InputError, ValueError):
            raise InputError(
                f"{place} is missing, or is not the picture that was indexed: put it back, or {BUILD_AGAIN}"
            ) from None

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


def nothing(queries: int, k: int) -> Found:
    """The result of a search that finds no row."""
    return Found(np.full((queries, k), -np.inf, np.float32), np.full((queries, k), -1, np.int64))


def _whole(numbers: npt.ArrayLike) -> Indices:
    given = np.asarray(numbers)
    if given.size and given.dtype.kind not in "iu":
        raise InputError(f"row numbers are whole, not {given.dtype}: correct them")
    whole: Indices = given.astype(np.int64).reshape(-1)
    return whole
