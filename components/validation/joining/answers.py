"""The answers of a synthesised table's tasks as one row per (pair, sample), nothing lost, joined out of core."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from components.core.errors import InputError
from components.core.records import GENERATIONS, PAIRS
from components.core.table import Table
from components.validation.joining import sql
from components.validation.table import Synthesised

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

import numpy.typing as npt

from components.core.words import normalised

Rows = npt.NDArray[np.int64]
_MEMORY, _THREADS = "512MB", 2
_PAIR_COLUMNS = ("id", "caption", "facts")


class Joined:
    """The joined rows, on disk, in the order of the first task's table."""

    def __init__(self, connection: DuckDBPyConnection, table: Synthesised) -> None:
        self._connection = connection
        self._table = table
        ((self.rows,),) = _run(connection, "select count(*) from joined")
        connection.create_function("said", normalised, ["VARCHAR"], "VARCHAR")  # type: ignore[list-item,arg-type]

    def shards(self, size: int) -> Iterator[pd.DataFrame]:
        """The rows in order, about `size` at a time: a shard ends where a pair's run of rows ends.

        Columns row, id, sample, the texts asked about (see `Synthesised.sources`), facts, other_id, other_facts, two
        per answer, and `verdict` and `written_by` of a judged one. The two are the answer itself and
        `rejected_<answer>`: why the synthesize stage has no usable answer, None where it has one. What belongs to the
        other pair is None where the task asks about one text, facts where it asks about no pair's caption. The index
        is the row's number.
        """
        held = self._frame(0, 0)
        for start in range(0, self.rows, size):
            found = self._frame(start, start + size)
            frame = pd.concat([held, found]) if len(held) else found
            cut = len(frame) if start + size >= self.rows else _last_run(frame["id"])
            if cut:
                yield frame.iloc[:cut]
            held = frame.iloc[cut:]

    def repeated(self) -> Rows:
        """Numbers of every row but the first whose answers all say what another sample of the same pair says, sorted.

        Samples of a pair may be any number of shards apart, so this looks at all rows, before the first shard.
        """
        found = self._connection.sql(sql.repeated(self._table)).fetchnumpy()["row"]
        return np.asarray(found, dtype=np.int64)

    def require_facts(self, pairs: Path) -> None:
        """Refuse rows about a pair without facts.

        Raises:
            InputError: there is one; the message names the pair.
        """
        for pair, *_ in _run(self._connection, sql.WITHOUT_FACTS):
            raise InputError(f"{pairs}: pair {pair} has no facts: set validate.check_facts to false in params.yaml")

    def _frame(self, start: int, end: int) -> pd.DataFrame:
        columns = sql.shown_columns(self._table)
        query = f"select {sql.names(columns)} from joined where row >= {start} and row < {end} order by row"
        found = self._connection.sql(query).to_arrow_table()
        numbers = ("row", "sample")
        return pd.DataFrame(
            {
                name: pd.Series(found[name].to_numpy() if name in numbers else found[name].to_pylist(), dtype=kind)
                for name, kind in ((name, np.int64 if name in numbers else object) for name in columns)
            }
        ).set_axis(found["row"].to_numpy())


@contextmanager
def join_answers(table: Synthesised, folder: Path, pairs: Path, scratch: Path) -> Iterator[Joined]:
    """The answers to a table's tasks, joined; what does not fit into memory waits on disk.

    Args:
        table: what to join.
        folder: holds `<task>.parquet` for each of the table's tasks.
        pairs: the pairs that the tasks asked about.
        scratch: folder in which a temporary one is made.

    Raises:
        InputError: a table is missing, damaged or empty, or the tables do not belong together.
    """
    import duckdb

    scratch.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory(dir=scratch, prefix=".joined.", ignore_cleanup_errors=True) as name,
        duckdb.connect(
            f"{name}/joined.duckdb",
            config={"memory_limit": _MEMORY, "threads": _THREADS, "temp_directory": f"{name}/spilled"},
        ) as connection,
    ):
        try:
            _join(connection, table, folder, pairs)
        except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
            reason = str(error).splitlines()[0][:120]
            raise InputError(f"{folder}: the answers cannot be joined ({reason}): free disk space") from None
        yield Joined(connection, table)


def _join(connection: DuckDBPyConnection, table: Synthesised, folder: Path, pairs: Path) -> None:
    paths = [folder / f"{answer.task}.parquet" for answer in table.answers]
    for number, path in enumerate(paths):
        _check(GENERATIONS, path)
        _run(connection, sql.answer_view(number, path))
        _refuse(connection, sql.twice(number), f"{path} has two answers for one row")
        if number == 0 and not _run(connection, "select 1 from answers_0 limit 1"):
            raise InputError(f"{path} has no rows: raise synthesize.captions and run `dvc repro`")
    if table.about == "captions":
        _check(PAIRS, pairs, _PAIR_COLUMNS)
        _run(connection, sql.pair_table(pairs))
    _run(connection, sql.joined(table))
    for column in ("foreign", "other_foreign"):
        _refuse(connection, sql.marked(column), f"{paths[0]} asks about a caption that {pairs} lacks")
    for number, path in enumerate(paths[1:], start=1):
        if _run(connection, sql.unmatched(number)) != [(0,)]:
            raise InputError(f"{path} answers rows that {paths[0]} lacks: run `dvc repro` on both again")
        _refuse(connection, sql.marked(f"stale_{number}"), f"{path} rewrites another text than {paths[0]} holds")


def _check(table: Table, path: Path, columns: Sequence[str] | None = None) -> None:
    for _ in table.blocks(path, columns):
        pass


def _refuse(connection: DuckDBPyConnection, query: str, fault: str) -> None:
    for identity, sample in _run(connection, query):
        raise InputError(f"{fault} (id {identity}, sample {sample}): run `dvc repro` on both again")


def _run(connection: DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    # A result that is not read to its end keeps the connection from the next query.
    found: list[tuple[Any, ...]] = connection.execute(query).fetchall()
    return found


def _last_run(ids: pd.Series[Any]) -> int:
    """Where the run of equal ids begins that the last row belongs to."""
    others = np.flatnonzero((ids != ids.iloc[-1]).to_numpy())
    return int(others[-1]) + 1 if len(others) else 0
