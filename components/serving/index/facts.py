"""What an index is, in `index.json`, and the columns of its rows: own ones, and further ones of its source."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from components.core.compute.metrics import Features
from components.core.system.discovery import choose
from components.core.system.errors import InputError
from components.core.tables import formats
from components.core.tables.formats import read_record

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
