"""The generation store: every answer of every language model, kept under what was asked, never asked twice."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from more_itertools import batched
from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, event, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.exc import SQLAlchemyError

from components.captions.task import Chat
from components.errors import InputError
from components.files import atomic_file, content_hash

_LOOK_UP_SIZE = 500
_METADATA = MetaData()
_GENERATIONS = Table(
    "generations",
    _METADATA,
    Column("key", String(64), primary_key=True),
    Column("task", String(64), nullable=False, index=True),
    Column("prompt_sha256", String(64), nullable=False),
    Column("model", String(200), nullable=False),
    Column("sampling", String(200), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("answer", String, nullable=False),
    Column("created", String(32), nullable=False),
)


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn."""

    temperature: float
    top_p: float
    max_tokens: int


@dataclass(frozen=True)
class Request:
    """One question to a model; `attempt` tells repeated questions apart."""

    task: str
    chat: tuple[tuple[str, str], ...]
    model: str
    sampling: Sampling
    attempt: int

    @property
    def messages(self) -> Chat:
        """The chat as engines take it."""
        return [{"role": role, "content": content} for role, content in self.chat]

    @property
    def prompt_sha256(self) -> str:
        """Hash of the rendered messages."""
        return content_hash(*(part for message in self.chat for part in message))

    @cached_property
    def key(self) -> str:
        """Hash of prompt, model revision, sampling and attempt: the same question has the same key everywhere."""
        return content_hash(self.prompt_sha256, self.model, self._sampling_json(), str(self.attempt))

    def _sampling_json(self) -> str:
        return json.dumps(asdict(self.sampling), sort_keys=True)

    def row(self, answer: str) -> dict[str, str | int]:
        """The store's row for this request and its answer."""
        return {
            "key": self.key,
            "task": self.task,
            "prompt_sha256": self.prompt_sha256,
            "model": self.model,
            "sampling": self._sampling_json(),
            "attempt": self.attempt,
            "answer": answer,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }


class GenerationStore:
    """Answers in a SQL database: SQLite by default, PostgreSQL by URL."""

    def __init__(self, url: str) -> None:
        """Open the store, making its table where it is missing.

        Raises:
            InputError: the database cannot be reached.
        """
        self._engine = _connect(url)
        try:
            _METADATA.create_all(self._engine)
        except SQLAlchemyError as error:
            shown = make_url(url).render_as_string(hide_password=True)
            reason = str(error).splitlines()[0]
            raise InputError(
                f"generation store {shown} cannot be opened ({reason}): correct synthesize.store"
            ) from None

    def answers(self, keys: Sequence[str]) -> dict[str, str]:
        """The answers that are stored for `keys`, looked up in bulk."""
        found: dict[str, str] = {}
        with self._engine.connect() as connection:
            for block in batched(keys, _LOOK_UP_SIZE):
                query = select(_GENERATIONS.c.key, _GENERATIONS.c.answer).where(_GENERATIONS.c.key.in_(block))
                found.update((row.key, row.answer) for row in connection.execute(query))
        return found

    def add(self, rows: Iterable[dict[str, str | int]]) -> None:
        """Store rows in one transaction; a key that is there already keeps its answer."""
        values = list(rows)
        if not values:
            return
        dialect = {"sqlite": sqlite, "postgresql": postgresql}[self._engine.dialect.name]
        statement = dialect.insert(_GENERATIONS).on_conflict_do_nothing(index_elements=["key"])
        with self._engine.begin() as connection:
            connection.execute(statement, values)

    def count(self) -> int:
        """How many answers are stored."""
        with self._engine.connect() as connection:
            return int(connection.execute(select(func.count()).select_from(_GENERATIONS)).scalar_one())

    def import_parquet(self, path: Path) -> int:
        """Merge an export into the store; returns how many answers were new.

        Raises:
            InputError: the file cannot be read or is no export.
        """
        before = self.count()
        try:
            stream = pq.ParquetFile(path)
            for batch in stream.iter_batches(batch_size=10_000, columns=[column.name for column in _GENERATIONS.c]):
                self.add(batch.to_pylist())
        except FileNotFoundError:
            raise InputError(f"{path} is missing: restore it from git, or set synthesize.replay to null") from None
        except (pa.ArrowException, OSError, KeyError) as error:
            reason = str(error).splitlines()[0][:120]
            raise InputError(f"{path} is no export of a generation store ({reason}): restore it from git") from None
        return self.count() - before

    def export_parquet(self, path: Path) -> int:
        """Write all answers to a Parquet file, sorted by task and key; returns how many."""
        schema = pa.schema(
            [(column.name, pa.int32() if column.name == "attempt" else pa.string()) for column in _GENERATIONS.c]
        )
        total = 0
        with atomic_file(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for rows in self._stream():
                writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema))
                total += len(rows)
        return total

    def _stream(self) -> Iterator[list[dict[str, str | int]]]:
        query = select(_GENERATIONS).order_by(_GENERATIONS.c.task, _GENERATIONS.c.key)
        with self._engine.connect().execution_options(yield_per=10_000) as connection:
            for partition in connection.execute(query).mappings().partitions():
                yield [dict(row) for row in partition]

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()


def _connect(url: str) -> Engine:
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite" and parsed.database:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(parsed)
    if parsed.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _set_pragmas)
    return engine


def _set_pragmas(connection: object, _record: object) -> None:
    cursor = connection.cursor()  # type: ignore[attr-defined]
    # A write-ahead log survives SIGKILL without losing a committed answer, and readers do not block the writer.
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA busy_timeout=30000")
    cursor.close()
