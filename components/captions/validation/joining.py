"""Joins answers to tasks, one row per pair and sample, out of core; the names in the SQL come from code, not data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from components.captions.prompting.tasks import find_task
from components.captions.validation.rules.table import Synthesised, TableAnswer
from components.core.system.errors import InputError
from components.core.tables.records import GENERATIONS, PAIRS
from components.core.tables.table import Table
from components.core.text import normalised

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_MEMORY, _THREADS = "512MB", 2
_PAIR_COLUMNS = ("id", "caption", "facts")
_BLANK = "".join(filter(str.isspace, map(chr, range(0x3001))))
"""All white space that Python strips."""


@contextmanager
def join_answers(table: Synthesised, folder: Path, pairs: Path, scratch: Path) -> Iterator[JoinedAnswers]:
    """Join the answers in `folder` to a table's tasks; rows that do not fit into memory are spilled to `scratch`."""
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
        yield JoinedAnswers(connection, table)


class JoinedAnswers:
    """The joined rows, on disk, in the order of the first task's table."""

    def __init__(self, connection: DuckDBPyConnection, table: Synthesised) -> None:
        self._connection = connection
        self._table = table
        ((self.rows,),) = _run(connection, "select count(*) from joined")
        connection.create_function("normalised", normalised, ["VARCHAR"], "VARCHAR")  # type: ignore[list-item,arg-type]

    def shards(self, size: int) -> Iterator[pd.DataFrame]:
        """The rows in order, about `size` at a time: a shard ends where a pair's run of rows ends.

        Columns row, id, sample, the source texts (see `Synthesised.sources`), facts, other_id, other_facts, two for
        each answer, and `verdict` and `written_by` of a judged one. The two are the answer itself and
        `rejected_<answer>`: the reason why stage `synthesize` has no usable answer, else None. Columns of the other
        pair are None if the task has one source, facts if its source is not a caption. The index is the row's number.
        """
        held = self._frame(0, 0)
        for start in range(0, self.rows, size):
            more = self._frame(start, start + size)
            frame = pd.concat([held, more]) if len(held) else more
            cut = len(frame) if start + size >= self.rows else _last_run(frame["id"])
            if cut:
                yield frame.iloc[:cut]
            held = frame.iloc[cut:]

    def captions(self, most: int) -> list[str]:
        """The first texts that the first task is about."""
        query = f"select {_name(self._table.sources[0])} from joined order by row limit {most}"
        return [text for (text,) in _run(self._connection, query)]

    def repeated(self) -> npt.NDArray[np.int64]:
        """Sorted numbers of the rows whose answers all repeat those of an earlier sample of the same pair.

        Samples of a pair may be any number of shards apart, so this reads all rows.
        """
        answers = [_name(answer.column) for answer in self._table.answers]
        whole = " and ".join(f"{name} is not null" for name in answers)
        # Digests: texts as keys would all be in memory.
        digests = ", ".join(f"md5(normalised({name}))" for name in answers)
        rows = self._connection.sql(f"""
            with several as (select id from joined where {whole} group by id having count(*) > 1)
            select row from joined where {whole} and id in (select id from several)
            qualify row_number() over (partition by id, {digests} order by row) > 1 order by row
        """)
        return np.asarray(rows.fetchnumpy()["row"], dtype=np.int64)

    def constant(self, share: float) -> npt.NDArray[np.int64]:
        """Sorted numbers of the rows with an answer that at least three captions share, and `share` of all captions.

        Only answers that are about the whole caption count.
        """
        caption = _name(self._table.sources[0])
        queries = [
            f"""
            with asked as (select row, md5(normalised({_name(answer.column)})) as text,
                md5(normalised({caption})) as source from joined where {_name(answer.column)} is not null),
            pairs as (select distinct text, source from asked)
            select row from asked where text in (select text from pairs group by text having count(*) >=
                greatest(3, {share} * (select count(distinct source) from pairs)))
            """
            for answer in self._table.answers
            if answer.is_whole
        ]
        return np.unique([row for query in queries for (row,) in _run(self._connection, query)]).astype(np.int64)

    def require_facts(self, pairs: Path) -> None:
        """Refuse rows of a pair without facts."""
        query = """
            select case when facts is null then id else other_id end from joined
            where facts is null or (other_id is not null and other_facts is null) order by row limit 1
        """
        for pair, *_ in _run(self._connection, query):
            raise InputError(
                f"{pairs}: pair {pair} has no facts: set validate.check_scene_facts to false in params.yaml"
            )

    def _frame(self, start: int, end: int) -> pd.DataFrame:
        columns = shown_columns(self._table)
        names = ", ".join(map(_name, columns))
        query = f"select {names} from joined where row >= {start} and row < {end} order by row"
        rows = self._connection.sql(query).to_arrow_table()
        numbers = {name: pd.Series(rows[name].to_numpy(), dtype=np.int64) for name in ("row", "sample")}
        texts = {name: pd.Series(rows[name].to_pylist(), dtype=object) for name in columns if name not in numbers}
        return pd.DataFrame(numbers | texts)[columns].set_axis(rows["row"].to_numpy())


def shown_columns(table: Synthesised) -> list[str]:
    """The columns of a joined row, see `JoinedAnswers.shards`."""
    source, other = table.sources
    columns = ["row", "id", "sample", source, "facts", "other_id", other, "other_facts", f"rejected_{source}"]
    for answer in table.answers:
        columns += [answer.column, f"rejected_{answer.column}", *_judgement(table, answer)]
    return columns


def _last_run(ids: pd.Series[Any]) -> int:
    """The start of the run of equal ids that ends with the last row."""
    others = np.flatnonzero((ids != ids.iloc[-1]).to_numpy())
    return int(others[-1]) + 1 if len(others) else 0


def _join(connection: DuckDBPyConnection, table: Synthesised, folder: Path, pairs: Path) -> None:
    paths = [folder / f"{answer.task}.parquet" for answer in table.answers]
    for number, path in enumerate(paths):
        _check(GENERATIONS, path)
        _run(connection, _answer_view(number, path))
        _run(connection, _repeated_rows(number))
        repeated = f"from repeated_{number}"
        differing = f"select id, sample {repeated} where differs order by row limit 1"
        _refuse(connection, differing, f"{path} has two answers for one row")
        if _run(connection, f"select 1 {repeated} limit 1"):
            _run(connection, _answer_view(number, path, f"where row not in (select row {repeated})"))
        if number == 0 and not _run(connection, "select 1 from answers_0 limit 1"):
            raise InputError(f"{path} has no rows: raise synthesize.max_captions and run `dvc repro`")
    if table.about == "captions":
        _check(PAIRS, pairs, _PAIR_COLUMNS)
        _run(connection, _pair_table(pairs))
    _run(connection, _joined(table))
    for column in ("foreign", "other_foreign"):
        _refuse(connection, _marked(column), f"{paths[0]} has a question about a caption that {pairs} lacks")
    for number, path in enumerate(paths[1:], start=1):
        joined = f"(select count(*) from joined where matched_{number})"
        if _run(connection, f"select (select count(*) from answers_{number}) - {joined}") != [(0,)]:
            raise InputError(f"{path} has answers for rows that {paths[0]} lacks: run `dvc repro` on both again")
        _refuse(connection, _marked(f"stale_{number}"), f"{path} rewrites a text that differs from {paths[0]}")


def _check(table: Table, path: Path, columns: Sequence[str] | None = None) -> None:
    for _ in table.blocks(path, columns):
        pass


def _refuse(connection: DuckDBPyConnection, query: str, fault: str) -> None:
    for identity, sample in _run(connection, query):
        raise InputError(f"{fault} (id {identity}, sample {sample}): run `dvc repro` on both again")


def _run(connection: DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    # An unread result would block the connection's next query.
    rows: list[tuple[Any, ...]] = connection.execute(query).fetchall()
    return rows


def _marked(column: str) -> str:
    """Query of the first joined row with a mark."""
    return f"select id, sample from joined where {_name(column)} order by row limit 1"


def _answer_view(number: int, path: Path, kept: str = "") -> str:
    """View `answers_<number>` of a task's table: row numbers, usable texts, and reasons for missing ones.

    `kept` is a condition on rows; those that meet it are numbered again, from 0.
    """
    return f"""
        create or replace view answers_{number} as
        select {"row_number() over (order by row) - 1 as row" if kept else "row"}, id, sample, source, other_id,
            other_source, verdict, written_by, key,
            case when trim(text, {_text(_BLANK)}) <> '' then text end as text,
            case when not accepted then replace(replace(coalesce(reason, 'no reason given'), ';', ','), chr(0), ' ')
                 when coalesce(trim(text, {_text(_BLANK)}), '') = '' then 'empty answer' end as rejected
        from (select *, file_row_number as row from {_parquet(path)}) {kept}
    """


def _repeated_rows(number: int) -> str:
    """Table `repeated_<number>`: later rows of a pair and sample, as of a caption that an image has twice."""
    return f"""
        create or replace table repeated_{number} as
        with firsts as (select id, sample, min(row) as first from answers_{number} group by all having count(*) > 1)
        select later.id, later.sample, later.row,
            (later.key, later.text) is distinct from (earlier.key, earlier.text) as differs
        from answers_{number} as later join firsts using (id, sample)
            join answers_{number} as earlier on earlier.row = firsts.first
        where later.row > firsts.first
    """


def _pair_table(path: Path) -> str:
    """Table `pairs`: the first caption and facts of every pair in a question."""
    # Aggregates of strings do not spill to disk, so this groups row numbers, not texts.
    return f"""
        create or replace table pairs as
        with firsts as (
            select id, min(file_row_number) as row from {_parquet(path)}
            where id in (select id from answers_0 union all select other_id from answers_0)
            group by id
        )
        select firsts.id, source.caption, source.facts
        from {_parquet(path)} as source join firsts on firsts.row = source.file_row_number
    """


def _joined(table: Synthesised) -> str:
    """Table `joined`: `JoinedAnswers.shards`, with marks of the rows that do not belong together."""
    source, other = table.sources
    texts = {source: "answers_0.source"}
    columns = [
        "answers_0.row", "answers_0.id", "answers_0.sample", "answers_0.other_id",
        f"answers_0.source as {_name(source)}", f"answers_0.other_source as {_name(other)}",
        f"null::varchar as {_name(f'rejected_{source}')}",
    ]  # fmt: skip
    links = []
    for number, answer in enumerate(table.answers):
        view = f"answers_{number}"
        rejected = f"{view}.rejected"
        if number:
            links.append(f"left join {view} on {view}.id = answers_0.id and {view}.sample = answers_0.sample")
            exists, text = f"{view}.row is not null", texts[answer.source]
            columns += [f"{exists} as matched_{number}"]
            columns += [f"{exists} and {view}.source <> coalesce({text}, {view}.source) as stale_{number}"]
            rejected = _unasked(number, table, answer)
        texts[answer.column] = f"{view}.text"
        columns += [f"{view}.text as {_name(answer.column)}", f"{rejected} as {_name(f'rejected_{answer.column}')}"]
        columns += [f"{view}.{name.removesuffix(answer.suffix)} as {_name(name)}" for name in _judgement(table, answer)]
    if table.about == "captions":
        columns += ["pairs.facts as facts", "others.facts as other_facts"]
        columns += ["pairs.caption is distinct from answers_0.source as foreign"]
        columns += ["answers_0.other_id is not null and others.caption is distinct from answers_0.other_source"
                    " as other_foreign"]  # fmt: skip
        links += ["left join pairs on pairs.id = answers_0.id"]
        links += ["left join pairs as others on others.id = answers_0.other_id"]
    else:
        columns += ["null::varchar as facts", "null::varchar as other_facts"]
        columns += ["false as foreign", "false as other_foreign"]
    return f"""
        create or replace table joined as select {", ".join(columns)}
        from answers_0 {" ".join(links)} order by answers_0.row
    """


def _unasked(number: int, table: Synthesised, answer: TableAnswer) -> str:
    # A rejected source is itself the reason why there was no question about it.
    places = {earlier.column: place for place, earlier in enumerate(table.answers)}
    rejected = f"answers_{places[answer.source]}.rejected" if answer.source in places else "null"
    exists = f"answers_{number}.row is not null"
    return f"case when {exists} then answers_{number}.rejected when {rejected} is null then 'never asked' end"


def _judgement(table: Synthesised, answer: TableAnswer) -> list[str]:
    names = [f"verdict{answer.suffix}", f"written_by{answer.suffix}"]
    judged = find_task(answer.task).judges is not None
    return [name for name in names if judged or name in table.table.schema.names]


def _parquet(path: Path) -> str:
    # The path may contain the characters of a glob pattern.
    plain = re.sub(r"([*?[])", r"[\1]", str(path))
    return f"read_parquet({_text(plain)}, file_row_number = true)"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
