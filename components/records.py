"""The columns of every table that one stage hands to the next, and the only way to read or write one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from components.errors import InputError
from components.files import atomic_file


@dataclass(frozen=True)
class Table:
    """A named table: its Arrow schema; non-nullable fields may hold neither null nor empty text."""

    name: str
    schema: pa.Schema

    def write(self, path: Path, columns: dict[str, list[object]] | pa.Table) -> None:
        """Write `columns` to `path` as Parquet, whole or not at all."""
        table = columns if isinstance(columns, pa.Table) else pa.table(columns, schema=self.schema)
        self.check(table, path)
        with atomic_file(path) as temporary:
            pq.write_table(table, temporary, compression="zstd")

    def read(self, path: Path, columns: Iterable[str] | None = None) -> pa.Table:
        """Read and check a table.

        Raises:
            InputError: the file is missing or damaged, a column is missing or has another type, or a
                row breaks the contract; the message names the file and the row.
        """
        if not path.exists():
            raise InputError(f"{path} is missing: run `dvc repro` to make it")
        wanted = list(columns) if columns is not None else self.schema.names
        try:
            missing = [name for name in wanted if name not in pq.read_schema(path).names]
            if missing:
                raise InputError(f"{path} lacks the column '{missing[0]}' of a '{self.name}' table: run `dvc repro`")
            table = pq.read_table(path, columns=wanted)
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                f"{path} cannot be read as a '{self.name}' table ({_brief(error)}): delete it and run `dvc repro`"
            ) from error
        self.check(table, path)
        return table

    def check(self, table: pa.Table, path: Path) -> None:
        """Raise `InputError` for the first row that holds null or empty text where the contract forbids it."""
        for field in self.schema:
            if field.name not in table.column_names:
                continue
            if field.type != table.schema.field(field.name).type:
                found = table.schema.field(field.name).type
                raise InputError(f"{path}: column '{field.name}' is {found}, a '{self.name}' table wants {field.type}")
            if field.nullable:
                continue
            column = table.column(field.name)
            bad = pa.compute.is_null(column)
            if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
                bad = pa.compute.or_kleene(bad, pa.compute.equal(pa.compute.binary_length(column), 0))
            row = pa.compute.index(pa.compute.fill_null(bad, True), True).as_py()
            if row >= 0:
                raise InputError(f"{path}: row {row} has no '{field.name}': mend or remove the row")


def _brief(error: Exception) -> str:
    return str(error).splitlines()[0][:120]


def _schema(*required: tuple[str, pa.DataType], optional: tuple[tuple[str, pa.DataType], ...] = ()) -> pa.Schema:
    return pa.schema(
        [pa.field(name, kind, nullable=False) for name, kind in required]
        + [pa.field(name, kind, nullable=True) for name, kind in optional]
    )


_TEXT, _BYTES, _INT, _BOOL, _REAL = pa.string(), pa.binary(), pa.int32(), pa.bool_(), pa.float64()

PAIRS = Table("pairs", _schema(("id", _TEXT), ("image", _BYTES), ("caption", _TEXT), optional=(("facts", _TEXT),)))
"""An image (encoded bytes) with its caption; `facts` is a scene's JSON in the embedded world."""

PARAPHRASE_QUERIES = Table(
    "paraphrase queries",
    _schema(("image_id", _TEXT), ("query", _TEXT), ("paraphrase", _TEXT), ("tier", _TEXT), ("held_out", _TEXT)),
)
"""A query and a human paraphrase of it; `held_out` says what training never saw: the `pair` or the `scene`."""

CAPTION_QUERIES = Table("caption queries", _schema(("image_id", _TEXT), ("text", _TEXT), ("register", _TEXT)))
"""Texts for retrieval with the image each describes; `register` is `plain` or `alt_text`."""

SWAPS = Table(
    "swaps",
    _schema(("image_id", _TEXT), ("true_caption", _TEXT), ("false_caption", _TEXT), ("kind", _TEXT), ("group", _TEXT)),
)
"""A true caption and one with two things exchanged; `kind` is `relation` or `attribute`."""

LABELS = Table("labels", _schema(("image_id", _TEXT), ("label", _TEXT)))
"""Images with the one object they show."""

GENERATIONS = Table(
    "generations",
    _schema(
        ("id", _TEXT), ("sample", _INT), ("source", _TEXT), ("key", _TEXT), ("accepted", _BOOL),
        optional=(("text", _TEXT), ("reason", _TEXT), ("other_id", _TEXT), ("other_source", _TEXT)),
    ),
)  # fmt: skip
"""One LLM answer: `id` of the pair, `source` the text it was asked about, `key` into the generation store.

`other_id` and `other_source` are those of the second pair, where the question was about two.
"""

PARAPHRASES = Table(
    "paraphrases",
    _schema(
        ("id", _TEXT), ("sample", _INT), ("caption", _TEXT), ("paraphrase_1", _TEXT), ("paraphrase_2", _TEXT),
        ("similarity_1", _REAL), ("similarity_2", _REAL),
    ),
)  # fmt: skip
"""A caption x, its paraphrase x' and the paraphrase x'' of that; similarities are MiniLM cosines to x and x'."""


def _answers(name: str, answer: str) -> Table:
    columns = (("id", _TEXT), ("sample", _INT), ("caption", _TEXT), (answer, _TEXT), ("similarity", _REAL))
    return Table(name, _schema(*columns))


REWRITES = _answers("rewrites", "rewrite")
"""A caption said in other words; similarities, here and below, are MiniLM cosines to the caption."""

NEGATIONS = _answers("negations", "negation")
"""A caption and a sentence that is false of its picture."""

NEGATED_TERMS = _answers("negated terms", "negated_term")
"""A caption and the same with one of "no", "not", "without"."""

HARD_NEGATIVES = _answers("hard negatives", "hard_negative")
"""A caption and one of nearly the same words that is false of its picture."""

DIFFERENCES = Table(
    "differences",
    _schema(
        ("id", _TEXT), ("other_id", _TEXT), ("sample", _INT), ("caption", _TEXT), ("other_caption", _TEXT),
        ("difference", _TEXT), ("similarity", _REAL),
    ),
)  # fmt: skip
"""How the picture of pair `id` differs from that of `other_id`, in words."""


def quarantine_of(table: Table) -> Table:
    """The table of rejected rows of `table`, with every reason that applied, separated by `;`."""
    required = [table.schema.field(name) for name in ("id", "sample", "caption")]
    texts = [field for field in table.schema if field.type == _TEXT and field not in required]
    optional = tuple((field.name, field.type) for field in texts)
    kept = tuple((field.name, field.type) for field in required)
    return Table(f"{table.name} quarantine", _schema(*kept, ("reason", _TEXT), optional=optional))
