from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from components.core.system.errors import InputError
from components.core.tables.record_files import read_record, write_record


class Note(BaseModel):
    text: str
    pages: dict[str, int]


def test_a_record_comes_back(tmp_path: Path) -> None:
    note = Note(text="ä", pages={"z": 1, "a": 2})
    write_record(tmp_path / "notes" / "one.json", note)
    found = read_record(Note, tmp_path / "notes" / "one.json", "write it")
    assert found == note
    assert list(found.pages) == ["z", "a"]


def test_a_missing_record_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"one\.json is missing: write it$"):
        read_record(Note, tmp_path / "one.json", "write it", "delete it")


def test_a_damaged_record_names_the_place_and_the_fix(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    for content, reason in (
        (b"", r"Invalid JSON"),
        (b'{"text": "a"', r"Invalid JSON"),
        (b"\xff\xfe", r"Invalid JSON"),
        (b"[]", r"object"),
        (b'{"text": "a"}', r"pages: Field required"),
        (b'{"text": "a", "pages": {"a": "x"}}', r"pages\.a: .*integer"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"one\.json is damaged \(.*{reason}.*\): delete it$"):
            read_record(Note, path, "write it", "delete it")
        with pytest.raises(InputError, match=r": write it$"):
            read_record(Note, path, "write it")
