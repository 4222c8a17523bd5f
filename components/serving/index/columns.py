"""The columns of an index's rows: those of every index, and further ones of the source that it was built from."""

from __future__ import annotations

import pyarrow as pa

from components.core.compute.metrics import Features
from components.core.system.errors import InputError

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
