"""Tables that do not belong together are refused, by file and row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from components.errors import InputError
from components.records import GENERATIONS, PAIRS
from components.validation.joining import join_answers
from components.validation.tables import find_table


def _join(files: Any) -> Any:
    return join_answers(find_table("paraphrases"), files.captions, files.pairs)


def test_keeps_every_first_answer_in_order(inputs: Any, answer: Any) -> None:
    frame = _join(inputs([answer(pair=2), answer(pair=1, found_2=False), answer(pair=1, sample=1)]))
    assert list(zip(frame["id"], frame["sample"], strict=True)) == [("pair2", 0), ("pair1", 0), ("pair1", 1)]
    assert list(frame["rejected_paraphrase_2"]) == [None, "never asked", None]
    assert list(frame["row"]) == [0, 1, 2]


def _change(path: Any, table: Any, change: Callable[[pa.Table], pa.Table]) -> None:
    table.write(path, change(table.read(path)))


def _set(column: str, value: str) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(column)
        return table.set_column(at, table.schema.field(at), pa.array([value] * table.num_rows))

    return change


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("paraphrase_1", lambda table: table.slice(0, 0), r"paraphrase_1\.parquet has no rows"),
        (
            "paraphrase_1",
            lambda table: pa.concat_tables([table, table]),
            r"paraphrase_1\.parquet has two answers .*pair0",
        ),
        (
            "paraphrase_1",
            lambda table: table.slice(1),
            r"paraphrase_2\.parquet answers rows that .*paraphrase_1\.parquet lacks",
        ),
        (
            "paraphrase_1",
            _set("source", "other caption"),
            r"paraphrase_1\.parquet asks about a caption .*id pair0, sample 0",
        ),
        (
            "paraphrase_2",
            _set("source", "other text"),
            r"paraphrase_2\.parquet rewrites another text .*id pair0, sample 0",
        ),
    ],
)
def test_tables_that_do_not_fit(inputs: Any, answer: Any, name: str, change: Any, message: str) -> None:
    files = inputs([answer(), answer(pair=1)])
    _change(files.captions / f"{name}.parquet", GENERATIONS, change)
    with pytest.raises(InputError, match=message):
        _join(files)


def test_pair_that_is_gone(inputs: Any, answer: Any) -> None:
    files = inputs([answer(), answer(pair=1)])
    _change(files.pairs, PAIRS, lambda table: table.filter(pc.equal(table.column("id"), "pair1")))
    with pytest.raises(InputError, match="id pair0, sample 0"):
        _join(files)


def test_truncated_file_is_named(inputs: Any, answer: Any) -> None:
    files = inputs([answer()])
    path = files.captions / "paraphrase_2.parquet"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match=r"paraphrase_2\.parquet cannot be read"):
        _join(files)
