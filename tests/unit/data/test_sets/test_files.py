"""Refusals that all readers of published test sets share, and the files that every benchmark names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.core.system.errors import InputError
from components.data.test_sets.files import TestSetFiles
from components.evaluation.benchmarks.published import published_benchmarks, published_families

COLUMNS = {"name": str, "size": int}
ROWS = [{"name": "a", "size": 1}, {"name": "b"}, "c", {"name": "d", "size": "4"}, {"name": "e", "size": 5}]


def test_incomplete_rows_are_named_and_only_skipped_if_allowed(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    message = r"rows.json: 3 rows lack name or size \(row 1, 2, 3, counted from 0\)"
    with pytest.raises(InputError, match=f"{message}.*add --allow-partial"):
        TestSetFiles(tmp_path).read_rows("rows.json", COLUMNS)
    files = TestSetFiles(tmp_path, allow_partial=True)
    assert files.read_rows("rows.json", COLUMNS) == [ROWS[0], ROWS[4]]
    assert files.notes == ["rows.json: 3 rows lack name or size (row 1, 2, 3, counted from 0)"]
    (tmp_path / "rows.csv").write_text("name,size\na\nb,1\n")
    assert files.read_csv("rows.csv", {"name": str, "size": str}) == [{"name": "b", "size": "1"}]


def test_other_counts_are_only_accepted_if_allowed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"images: 2 found, 5,000 published: .*add --allow-partial"):
        TestSetFiles(tmp_path).expect("images", 2, 5000)
    files = TestSetFiles(tmp_path, allow_partial=True)
    files.expect("images", 5000, 5000)
    files.expect("images", 2, 5000)
    assert files.notes == ["images: 2 found, 5,000 published"]


def test_missing_damaged_and_other_files_are_named(tmp_path: Path) -> None:
    files = TestSetFiles(tmp_path, allow_partial=True)
    contents = {
        b"": "is missing", b"{": "is damaged", b"\xff\xfe": "is damaged", b"1": "holds no list of rows",
        b"[]": "has no row that can be scored", b'[{"name": 1}]': "has no row that can be scored",
    }  # fmt: skip
    for content, message in contents.items():
        if content:
            (tmp_path / "rows.json").write_bytes(content)
        with pytest.raises(InputError, match=f"rows.json {message}"):
            files.read_rows("rows.json", COLUMNS)
    for text, message in {"[]": "holds no JSON object", "{}": "has no list 'images'"}.items():
        (tmp_path / "rows.json").write_text(text)
        with pytest.raises(InputError, match=message):
            files.read_lists("rows.json", "images")
    with pytest.raises(InputError, match=r"rows.csv is damaged"):
        files.read_csv("rows.csv", COLUMNS)


def test_every_benchmark_is_found_and_lists_its_missing_files(tmp_path: Path) -> None:
    """Those without required files list both of their layouts."""
    for name, benchmark in published_benchmarks().items():
        required = [need for need in benchmark.needs if not need.optional]
        with pytest.raises(InputError) as fault:
            benchmark.check_files(tmp_path)
        message = str(fault.value)
        assert f"'{name}' lacks files: put into {tmp_path / benchmark.folder}" in message
        assert all(need.description in message for need in required), message
        assert "licence" in message
    assert published_families()["sts"] == ["sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"]
