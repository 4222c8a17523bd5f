"""Answers are joined without loss, and tables that do not belong together are refused, by file and row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from components.captions.validation.joining import join_answers, shown_columns
from components.captions.validation.rules.tables import find_table
from components.core.system.errors import InputError
from components.core.tables.records import GENERATIONS, PAIRS
from tests.unit.captions.validation.conftest import Answer, write_paraphrases, write_texts


def _joined(files: Any, table: str = "paraphrases") -> Any:
    return join_answers(find_table(table), files.captions / table, files.pairs, files.quarantine)


def _join(files: Any, size: int = 1000) -> Any:
    with _joined(files) as joined:
        return pd.concat(joined.shards(size))


def test_keeps_every_first_answer_in_order(tmp_path: Path) -> None:
    answers = [Answer(pair=2), Answer(pair=1, found_2=False), Answer(pair=1, sample=1)]
    frame = _join(write_paraphrases(tmp_path, answers))
    assert list(zip(frame["id"], frame["sample"], strict=True)) == [("pair2", 0), ("pair1", 0), ("pair1", 1)]
    assert list(frame["rejected_paraphrase_2"]) == [None, "never asked", None]
    assert list(frame["row"]) == [0, 1, 2]


def _change(path: Any, table: Any, change: Callable[[pa.Table], pa.Table]) -> None:
    table.write(path, change(table.read(path)))


def _set(column: str, value: str | None) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(column)
        return table.set_column(at, table.schema.field(at), pa.array([value] * table.num_rows, pa.string()))

    return change


def test_tables_that_do_not_belong_together_are_named_with_file_and_row(tmp_path: Path) -> None:
    faults: list[tuple[str, Callable[[pa.Table], Any], str]] = [
        ("paraphrase_1", lambda table: table.slice(0, 0), r"paraphrase_1\.parquet has no rows"),
        (
            "paraphrase_1",
            lambda table: pa.concat_tables([table, _set("text", "other")(table)]),
            r"_1\.parquet has two answers .*pair0",
        ),
        ("paraphrase_1", lambda table: table.slice(1), r"_2\.parquet has answers for rows that .*_1\.parquet lacks"),
        ("paraphrase_1", _set("source", "other"), r"_1\.parquet has a question about a caption .*id pair0, sample 0"),
        ("paraphrase_2", _set("source", "other"), r"_2\.parquet rewrites a text that differs .*id pair0, sample 0"),
    ]
    for name, change, message in faults:
        files = write_paraphrases(tmp_path, [Answer(), Answer(pair=1)])
        _change(files.captions / "paraphrases" / f"{name}.parquet", GENERATIONS, change)
        with pytest.raises(InputError, match=message):
            _join(files)
    files = write_paraphrases(tmp_path, [Answer(), Answer(pair=1)])
    _change(files.pairs, PAIRS, lambda table: table.filter(pc.equal(table.column("id"), "pair1")))
    with pytest.raises(InputError, match="id pair0, sample 0"):
        _join(files)
    path = files.captions / "paraphrases" / "paraphrase_2.parquet"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match=r"paraphrase_2\.parquet cannot be read"):
        _join(files)


def test_a_caption_that_an_image_has_twice_counts_once(tmp_path: Path) -> None:
    files = write_paraphrases(tmp_path, [Answer(), Answer(pair=1), Answer(pair=2)])
    once = _join(files)
    for name in ("paraphrase_1", "paraphrase_2"):
        path = files.captions / "paraphrases" / f"{name}.parquet"
        _change(
            path, GENERATIONS, lambda table: pa.concat_tables([table.slice(0, 2), table.slice(0, 1), table.slice(2)])
        )
    pd.testing.assert_frame_equal(_join(files), once)


def test_path_with_the_signs_of_a_pattern(tmp_path: Path) -> None:
    files = write_paraphrases(tmp_path, [Answer(), Answer(pair=1)])
    odd = tmp_path / "it's [a] folder*?"
    odd.mkdir()
    (files.captions / "paraphrases").rename(odd / "paraphrases")
    assert len(_join(replace(files, captions=odd))) == 2
    assert list(files.quarantine.iterdir()) == [], "the join leaves no file behind"


def test_white_space_is_not_an_answer_and_a_reason_has_no_separator(tmp_path: Path) -> None:
    answers = [Answer(text_2="\u2003\u00a0\x1c\n"), Answer(pair=1, text_2=" \u2003a")]
    answers.append(Answer(pair=2, text_1=None, found_2=False, reason_1="failed: a; b\x00c"))
    frame = _join(write_paraphrases(tmp_path, answers))
    assert frame["paraphrase_2"].tolist() == [None, " \u2003a", None]
    assert frame["rejected_paraphrase_1"].tolist() == [None, None, "failed: a, b c"]
    assert frame["rejected_paraphrase_2"].tolist() == ["empty answer", None, None]


def test_of_two_rows_of_a_pair_the_first_counts(tmp_path: Path) -> None:
    files = write_paraphrases(tmp_path, [Answer()])
    pairs = PAIRS.read(files.pairs)
    other = _set("facts", "other")(_set("caption", "other caption")(pairs))
    PAIRS.write(files.pairs, pa.concat_tables([pairs, other]))
    assert _join(files)["facts"].tolist() == [pairs["facts"][0].as_py()]


def test_a_table_about_classes_needs_no_pairs(tmp_path: Path) -> None:
    files = write_texts(tmp_path, "class_descriptions", ["It has four legs."], "dog")
    files.pairs.unlink()
    with _joined(files, "class_descriptions") as joined:
        (frame,) = joined.shards(10)
    assert frame[["class_name", "description", "facts"]].to_numpy().tolist() == [["dog", "It has four legs.", None]]


def test_pair_without_facts_is_named(tmp_path: Path) -> None:
    files = write_paraphrases(tmp_path, [Answer(), Answer(pair=1)])
    _change(files.pairs, PAIRS, lambda rows: pa.concat_tables([rows.slice(0, 1), _set("facts", None)(rows.slice(1))]))
    with _joined(files) as joined, pytest.raises(InputError, match=r"pair pair1 has no facts: set validate\.check"):
        joined.require_facts(files.pairs)


def test_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise duckdb.IOException("Could not write all bytes to file\nNo space left on device")

    monkeypatch.setattr("components.captions.validation.joining._join", full)
    files = write_paraphrases(tmp_path, [Answer()])
    message = r"captions/paraphrases: the answers cannot be joined \(Could not write.*free disk space"
    with pytest.raises(InputError, match=message):
        _join(files)
    assert list(files.quarantine.iterdir()) == []


def test_without_the_judge_its_candidates_are_the_answers() -> None:
    for name, candidates in (("negations", "negate_semclip"), ("semclip_paraphrases", "paraphrase_semclip")):
        judged, unjudged = find_table(name), find_table(name).unjudged()
        assert [answer.task for answer in unjudged.answers] == [candidates]
        assert [answer.checks for answer in unjudged.answers] == [answer.checks for answer in judged.answers]
        assert shown_columns(unjudged) == shown_columns(judged), "a verdict column stays, empty"
    assert find_table("paraphrases").unjudged() == find_table("paraphrases")
