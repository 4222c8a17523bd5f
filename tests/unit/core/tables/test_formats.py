from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from components.core.system.errors import InputError
from components.core.tables import formats
from components.core.tables.formats import read_record, write_record


class Note(BaseModel):
    text: str
    pages: dict[str, int]


def test_a_record_comes_back_and_a_missing_one_is_named_with_the_fix(tmp_path: Path) -> None:
    note, path = Note(text="ä", pages={"z": 1, "a": 2}), tmp_path / "notes" / "one.json"
    with pytest.raises(InputError, match=r"one\.json is missing: write it$"):
        read_record(Note, path, "write it", "delete it")
    write_record(path, note)
    found = read_record(Note, path, "write it")
    assert found == note
    assert list(found.pages) == ["z", "a"]


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


class Strict(Note, extra="forbid"):
    pass


def test_a_record_of_a_newer_version_is_refused_by_name_and_not_called_damaged(tmp_path: Path) -> None:
    path, note = tmp_path / "one.json", '"text": "a", "pages": {}'
    for content, reason in (
        (f'{{"format": 3, {note}}}', "it has format 3, this one reads 2"),
        (f'{{"colour": "red", {note}}}', "this one does not know 'colour'"),
    ):
        path.write_text(content)
        with pytest.raises(formats.NewerFormatError) as error:
            read_record(Strict, path, "write it", "delete it", newest=2)
        assert str(error.value) == f"{path} was made by a newer cliptune ({reason}): update cliptune"
    path.write_text(f"{{{note}}}")
    assert read_record(Strict, path, "write it", newest=2).text == "a"
