"""`ImageIndex`: searches an index with the vectors of an encoder; what an index is (`index.json`), and its columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from components.core.compute.metrics import Features, Indices
from components.core.pictures.folder import PICTURE_BOUND
from components.core.pictures.stored_pictures import PICTURE, Pictures, is_picture, place_of
from components.core.system.discovery import choose
from components.core.system.errors import InputError
from components.core.system.user_files import Bound
from components.core.tables import formats
from components.core.tables.formats import read_record
from components.encoders.under_test import EncoderUnderTest

FACTS = "index.json"
EXACT, LANCE, AUTO = "exact", "lance", "auto"
KINDS = (EXACT, LANCE)
"""Every vector is compared with a query, or a table of LanceDB is searched, approximately where it is large."""
BUILD_AGAIN = "build the index again"
MOST_EXACT = 1_000_000
"""Kind `auto` is `exact` up to so many images."""
VECTOR = "vector"
OWN = pa.schema(
    [
        pa.field("image_id", pa.string(), nullable=False),
        pa.field("caption", pa.string()),
        pa.field("name", pa.string()),
        pa.field("file", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("size", pa.int64()),
    ]
)
"""Columns of every index; the last three locate the picture, as in `components.core.tables.records.PAIRS`."""
Chunk = tuple[pa.Table, Features]
"""Rows with the columns of an index, and their unit vectors `[rows, dim]`."""
CHUNK = 1 << 15
"""Rows that are in memory while an index is written."""
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
        from components.serving.index.kinds import ExactIndex, LanceIndex

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


class Facts(BaseModel):
    """An index as a whole.

    Attributes:
        encoder: name of an encoder with the image tower, for messages.
        rows: of kind `exact`; the table of kind `lance` counts its own.
    """

    model_config = ConfigDict(frozen=True)

    format: int = formats.INDEX
    kind: str
    dim: Annotated[int, Field(ge=1, le=1 << 16)]
    image_tower_sha256: Annotated[str, Field(min_length=1, max_length=128)]
    encoder: str
    rows: PositiveInt | None = None


def read_facts(folder: Path) -> Facts:
    """Read `index.json`; raises `InputError` if it is missing, damaged or of another format."""
    facts = read_record(Facts, folder / FACTS, "make one with `cliptune index build`", BUILD_AGAIN, formats.INDEX)
    if facts.format < formats.INDEX:
        raise InputError(
            f"{folder} has format {facts.format}, this version reads {formats.INDEX}: build it again, "
            f"`cliptune index build <new folder> --from <its pictures> --encoder {facts.encoder}`"
        )
    return facts


def choose_kind(name: str, rows: int | None) -> str:
    """`name`, or for `auto` the kind for so many rows; raises `InputError` if its package is missing."""
    kind = choose(list(KINDS), name, "--kind") if name != AUTO else LANCE if (rows or 0) > MOST_EXACT else EXACT
    if kind == LANCE and find_spec("lancedb") is None:
        raise InputError("kind 'lance' needs the package: pip install lancedb, or give --kind exact")
    return kind


def stored_type(kind: pa.DataType) -> pa.DataType | None:
    """The type in which a further column is stored; None for lists and other types, which are dropped."""
    if pa.types.is_boolean(kind):
        return pa.bool_()
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_null, pa.types.is_temporal)
    return pa.string() if any(is_kind(kind) for is_kind in texts) else None


def further_name(column: str) -> str:
    """The name of a further column in an index: one that an index uses itself gets `_` appended."""
    return f"{column}_" if column in {*OWN.names, VECTOR} else column


def schema_for(table: pa.Table) -> pa.Schema:
    """The columns of an index whose first rows are those of a table."""
    kinds = {field.name: stored_type(field.type) for field in table.schema if field.name not in OWN.names}
    return pa.schema([*OWN, *(pa.field(name, kind) for name, kind in kinds.items() if kind is not None)])


def fitted(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """A table with exactly an index's columns; missing ones are null."""
    found = []
    for field in schema:
        given = table[field.name] if field.name in table.column_names else pa.nulls(table.num_rows)
        try:
            found.append(given.cast(field.type))
        except pa.ArrowException:
            raise InputError(
                f"{where}: column '{field.name}' is {given.type}, the index has {field.type}: convert or rename it"
            ) from None
    return pa.table(found, schema=schema)
