"""The columns of every table that one stage hands to the next, and the only way to read or write one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from components.errors import InputError
from components.files import atomic_file

Append = Callable[[dict[str, list[object]] | pa.Table], None]
"""Appends columns to a table that is being written."""


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

    @contextmanager
    def writer(self, path: Path, metadata: Callable[[], dict[str, str]] | None = None) -> Iterator[Append]:
        """Write a table block by block, whole or not at all; memory holds one block.

        Yields a function that appends columns. `metadata` is asked at the end for what the file says about itself.
        """
        with atomic_file(path) as temporary, pq.ParquetWriter(temporary, self.schema, compression="zstd") as stream:

            def append(columns: dict[str, list[object]] | pa.Table) -> None:
                block = columns if isinstance(columns, pa.Table) else pa.table(columns, schema=self.schema)
                self.check(block, path)
                stream.write_table(block)

            yield append
            if metadata is not None:
                stream.add_key_value_metadata(metadata())

    def read(self, path: Path, columns: Iterable[str] | None = None) -> pa.Table:
        """Read and check a table.

        Raises:
            InputError: the file is missing or damaged, a column is missing or has another type, or a
                row breaks the contract; the message names the file and the row.
        """
        wanted = list(columns) if columns is not None else self.schema.names
        with self._reading(path, wanted):
            table = pq.read_table(path, columns=wanted)
        self.check(table, path)
        return table

    def blocks(self, path: Path, columns: Iterable[str] | None = None, rows: int = 10_000) -> Iterator[pa.Table]:
        """Read and check a table, `rows` rows at a time; memory holds one block.

        Raises:
            InputError: as for `read`, once the rows before the fault were given.
        """
        wanted = list(columns) if columns is not None else self.schema.names
        first = 0
        # Without a buffer all of a row group's column is read at once.
        with self._reading(path, wanted), pq.ParquetFile(path, buffer_size=1 << 20) as stream:
            for batch in stream.iter_batches(rows, columns=wanted):
                block = pa.Table.from_batches([batch]).select(wanted)
                self.check(block, path, first)
                first += block.num_rows
                yield block

    def count(self, path: Path) -> int:
        """The number of rows of a file of this table.

        Raises:
            InputError: the file is missing or damaged.
        """
        with self._reading(path, []):
            return int(pq.read_metadata(path).num_rows)

    @contextmanager
    def _reading(self, path: Path, wanted: list[str]) -> Iterator[None]:
        """Refuse a file without the columns `wanted`, and make what goes wrong inside an `InputError`."""
        if not path.exists():
            raise InputError(f"{path} is missing: run `dvc repro` to make it")
        try:
            missing = [name for name in wanted if name not in pq.read_schema(path).names]
            if missing:
                raise InputError(f"{path} lacks the column '{missing[0]}' of a '{self.name}' table: run `dvc repro`")
            yield
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                f"{path} cannot be read as a '{self.name}' table ({_brief(error)}): delete it and run `dvc repro`"
            ) from error

    def check(self, table: pa.Table, path: Path, first: int = 0) -> None:
        """Raise `InputError` for the first row that holds null or empty text where the contract forbids it.

        `first` is the number that the table's first row has in the file.
        """
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
                raise InputError(f"{path}: row {first + row} has no '{field.name}': mend or remove the row")


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

NEGATION_QUERIES = Table(
    "negation queries",
    _schema(
        ("image_id", _TEXT), ("caption", _TEXT), ("negation", _TEXT), ("paraphrase", _TEXT), ("cue", _TEXT),
        ("tier", _TEXT),
    ),
)  # fmt: skip
"""A true caption, the same made false by the negation `cue`, and a true paraphrase whose hardest word is of `tier`."""

COMPARISONS = Table(
    "comparisons",
    _schema(
        ("first_id", _TEXT), ("second_id", _TEXT), ("true_difference", _TEXT), ("false_difference", _TEXT),
        ("kind", _TEXT), ("answer", _TEXT),
    ),
)  # fmt: skip
"""Two images, how they differ, and how they would if exchanged; `answer` is the one that the true sentence begins with.

`kind` is what they differ in, `size`, `background`, `position` or `object`; in `size` the answer is where a thing is
larger.
"""

LABELS = Table("labels", _schema(("image_id", _TEXT), ("label", _TEXT)))
"""Images with the one object they show."""

GENERATIONS = Table(
    "generations",
    _schema(
        ("id", _TEXT), ("sample", _INT), ("source", _TEXT), ("key", _TEXT), ("accepted", _BOOL),
        optional=(
            ("text", _TEXT), ("reason", _TEXT), ("other_id", _TEXT), ("other_source", _TEXT), ("verdict", _TEXT),
            ("written_by", _TEXT),
        ),
    ),
)  # fmt: skip
"""One LLM answer: `id` of the pair, `source` the text it was asked about, `key` into the generation store.

`other_id` and `other_source` are those of the second pair, where the question was about two. A task that judges
another's answers has its `verdict`, `yes` or `no`, and in `written_by` whose text it is: the `generator`'s or, after a
`no`, the `judge`'s.
"""

PARAPHRASES = Table(
    "paraphrases",
    _schema(
        ("id", _TEXT), ("sample", _INT), ("caption", _TEXT), ("paraphrase_1", _TEXT), ("paraphrase_2", _TEXT),
        ("similarity_1", _REAL), ("similarity_2", _REAL),
    ),
)  # fmt: skip
"""A caption x, its paraphrase x' and the paraphrase x'' of that; similarities are MiniLM cosines to x and x'."""


def _answers(name: str, answer: str, *, judged: bool = False) -> Table:
    columns = (("id", _TEXT), ("sample", _INT), ("caption", _TEXT), (answer, _TEXT), ("similarity", _REAL))
    return Table(name, _schema(*columns, optional=_JUDGEMENT if judged else ()))


_JUDGEMENT = (("verdict", _TEXT), ("written_by", _TEXT))

REWRITES = _answers("rewrites", "rewrite")
"""A caption said in other words; similarities, here and below, are MiniLM cosines to the caption."""

SEMCLIP_PARAPHRASES = _answers("semclip paraphrases", "paraphrase", judged=True)
"""A caption said in other words; `verdict` is a judge's of the first attempt, and `written_by` says who wrote this."""

NEGATIONS = _answers("negations", "negation", judged=True)
"""A caption and a sentence that is false of its picture; judged as semclip paraphrases are."""

NEGATED_TERMS = _answers("negated terms", "negated_term")
"""A caption and the same with one of "no", "not", "without"."""

HARD_NEGATIVES = _answers("hard negatives", "hard_negative")
"""A caption and one of nearly the same words that is false of its picture."""


def _comparisons(name: str, *columns: tuple[str, pa.DataType]) -> Table:
    return Table(name, _schema(("id", _TEXT), ("other_id", _TEXT), ("sample", _INT), *columns))


_CAPTIONS = (("caption", _TEXT), ("other_caption", _TEXT))

DIFFERENCES = _comparisons("differences", *_CAPTIONS, ("difference", _TEXT), ("similarity", _REAL))
"""How the picture of pair `id` differs from that of `other_id`, in words."""

DIFFERENCES_CUB = Table("differences cub", DIFFERENCES.schema)
"""The same, asked about pictures of one kind of thing."""

DIFFERENCE_SCORES = _comparisons("difference scores", *_CAPTIONS, ("judgement", _TEXT), ("score", _REAL))
"""How good the difference of the same pairs and sample is, from 0 to 1; `judgement` is what the judge said, as JSON."""

CLASS_DIFFERENCES = _comparisons(
    "class differences", ("class_name", _TEXT), ("other_class_name", _TEXT), ("difference", _TEXT)
)
"""How things of one class look different from things of another; ids are those of the names."""

CLASS_DESCRIPTIONS = Table(
    "class descriptions", _schema(("id", _TEXT), ("sample", _INT), ("class_name", _TEXT), ("description", _TEXT))
)
"""What things of a class look like."""

QUERY_PARAPHRASES = Table(
    "query paraphrases",
    _schema(("id", _TEXT), ("sample", _INT), ("query", _TEXT), ("paraphrase", _TEXT), ("similarity", _REAL)),
)
"""An evaluation query of image `id` in other words; never to be trained on."""


_IDS = ("id", "other_id")


def quarantine_of(table: Table) -> Table:
    """The table of rejected rows of `table`, with every reason that applied, separated by `;`."""
    asked_about = next(field.name for field in table.schema if field.type == _TEXT and field.name not in _IDS)
    required = [table.schema.field(name) for name in ("id", "sample", asked_about)]
    texts = [field for field in table.schema if field.type == _TEXT and field not in required]
    optional = tuple((field.name, field.type) for field in texts)
    kept = tuple((field.name, field.type) for field in required)
    return Table(f"{table.name} quarantine", _schema(*kept, ("reason", _TEXT), optional=optional))
