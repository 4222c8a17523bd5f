"""The SQL that joins a synthesised table's answers; names come from code, never from data."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from components.captions.tasks import find_task
from components.validation.table import Answer, Synthesised

_BLANK = "".join(filter(str.isspace, map(chr, range(0x3001))))
"""All white space that Python strips."""

WITHOUT_FACTS = """
    select case when facts is null then id else other_id end from joined
    where facts is null or (other_id is not null and other_facts is null)
    order by row limit 1
"""
"""The first pair without facts."""


def shown_columns(table: Synthesised) -> list[str]:
    """The columns of a joined row, see `Joined.shards`."""
    source, other = table.sources
    columns = ["row", "id", "sample", source, "facts", "other_id", other, "other_facts", f"rejected_{source}"]
    for answer in table.answers:
        columns += [answer.column, f"rejected_{answer.column}", *_judgement(table, answer)]
    return columns


def answer_view(number: int, path: Path) -> str:
    """View `answers_<number>` of a task's table: its row numbers, usable texts, and why there is none."""
    return f"""
        create or replace view answers_{number} as
        select file_row_number as row, id, sample, source, other_id, other_source, verdict, written_by,
            case when trim(text, {_text(_BLANK)}) <> '' then text end as text,
            case when not accepted then replace(replace(coalesce(reason, 'no reason given'), ';', ','), chr(0), ' ')
                 when coalesce(trim(text, {_text(_BLANK)}), '') = '' then 'empty answer' end as rejected
        from {_parquet(path)}
    """


def twice(number: int) -> str:
    """The first row of `answers_<number>` that a row before it is about too."""
    return f"""
        with keys as (select id, sample, max(row) as row from answers_{number} group by all having count(*) > 1)
        select id, sample from keys order by row limit 1
    """


def pair_table(path: Path) -> str:
    """Table `pairs`: the first caption and facts of every pair that is asked about."""
    # Grouping the texts themselves would hold all of them in memory: aggregates of strings do not spill to disk.
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


def joined(table: Synthesised) -> str:
    """Table `joined`: `Joined.shards`, with marks of the rows that do not belong together."""
    source, other = table.sources
    texts = {source: "answers_0.source"}
    columns = [
        "answers_0.row", "answers_0.id", "answers_0.sample", "answers_0.other_id",
        f"answers_0.source as {_name(source)}", f"answers_0.other_source as {_name(other)}",
        f"null::varchar as {_name(f'rejected_{source}')}",
    ]  # fmt: skip
    links = []
    for number, answer in enumerate(table.answers):
        rejected = f"answers_{number}.rejected"
        if number:
            same = " and ".join(f"answers_{number}.{key} = answers_0.{key}" for key in ("id", "sample"))
            links.append(f"left join answers_{number} on {same}")
            columns += _later(number, texts[answer.source])
            rejected = _never_asked(number, table, answer)
        texts[answer.column] = f"answers_{number}.text"
        columns += [f"answers_{number}.text as {_name(answer.column)}"]
        columns += [f"{rejected} as {_name(f'rejected_{answer.column}')}"]
        columns += [
            f"answers_{number}.{name.removesuffix(answer.suffix)} as {_name(name)}"
            for name in _judgement(table, answer)
        ]
    facts, looked_up = _facts(table)
    return f"""
        create or replace table joined as select {", ".join([*columns, *facts])}
        from answers_0 {" ".join([*links, *looked_up])} order by answers_0.row
    """


def marked(column: str) -> str:
    """The first joined row with a mark."""
    return f"select id, sample from joined where {_name(column)} order by row limit 1"


def unmatched(number: int) -> str:
    """How many answers of a later task belong to no row."""
    return f"select (select count(*) from answers_{number}) - (select count(*) from joined where found_{number})"


def repeated(table: Synthesised) -> str:
    """Numbers of the rows whose answers all say what an earlier row of their pair says, by the function `said`."""
    answers = [_name(answer.column) for answer in table.answers]
    whole = " and ".join(f"{name} is not null" for name in answers)
    # Digests, for texts as keys would all be held in memory.
    digests = ", ".join(f"md5(said({name}))" for name in answers)
    return f"""
        with several as (select id from joined where {whole} group by id having count(*) > 1)
        select row from joined where {whole} and id in (select id from several)
        qualify row_number() over (partition by id, {digests} order by row) > 1 order by row
    """


def names(columns: Iterable[str]) -> str:
    """Column names, quoted."""
    return ", ".join(map(_name, columns))


def _later(number: int, asked_about: str) -> list[str]:
    """Marks of a later answer: whether there is one, and whether it is about another text than its source's."""
    found, source = f"answers_{number}.row is not null", f"answers_{number}.source"
    return [
        f"{found} as found_{number}",
        f"{found} and {source} <> coalesce({asked_about}, {source}) as stale_{number}",
    ]


def _never_asked(number: int, table: Synthesised, answer: Answer) -> str:
    # A source that was rejected explains itself why nothing was asked about it.
    places = {earlier.column: place for place, earlier in enumerate(table.answers)}
    rejected = f"answers_{places[answer.source]}.rejected" if answer.source in places else "null"
    asked = f"answers_{number}.row is not null"
    return f"case when {asked} then answers_{number}.rejected when {rejected} is null then 'never asked' end"


def _judgement(table: Synthesised, answer: Answer) -> list[str]:
    names = [f"verdict{answer.suffix}", f"written_by{answer.suffix}"]
    judged = find_task(answer.task).judges is not None
    return [name for name in names if judged or name in table.table.schema.names]


def _facts(table: Synthesised) -> tuple[list[str], list[str]]:
    """Columns of facts and marks of captions that the pairs lack, and the joins that they need."""
    if table.about != "captions":
        nothing = ("null::varchar as facts", "null::varchar as other_facts")
        return [*nothing, "false as foreign", "false as other_foreign"], []
    columns = [
        "pairs.facts as facts", "others.facts as other_facts",
        "pairs.caption is distinct from answers_0.source as foreign",
        "answers_0.other_id is not null and others.caption is distinct from answers_0.other_source"
        " as other_foreign",
    ]  # fmt: skip
    return columns, [
        "left join pairs on pairs.id = answers_0.id", "left join pairs as others on others.id = answers_0.other_id"
    ]  # fmt: skip


def _parquet(path: Path) -> str:
    # The path may hold what a glob would take for a pattern.
    plain = re.sub(r"([*?[])", r"[\1]", str(path))
    return f"read_parquet({_text(plain)}, file_row_number = true)"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
