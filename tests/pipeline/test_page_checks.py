"""The checks of the pages see what they are for: long or odd sentences, and numbers that no file has."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[2] / "docs" / "scripts"
CLEAN = "The server prints one line. It resumes after a stop.\n"


@pytest.fixture(scope="module")
def prose() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPTS / "prose.py"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CLEAN, []),
        ("The file is no picture.", ["is no"]),
        ("There is no GPU. It is no longer there.", []),
        ("The command asks the server, which tells the user.", ["asks", "tells"]),
        ("It shows what it found. What is a paraphrase?", ["what it "]),
        ("| a | the run goes on |", ["goes on"]),
        ("`asks` in code, and [a link](asks.md).", []),
        ("- one item\n- " + "word " * 40, ["40 words"]),
        (f"{'word ' * 20}\n\n{'word ' * 20}", []),
    ],
)
def test_english(prose: dict[str, Any], text: str, words: list[str]) -> None:
    found = list(prose["faults"](prose["sentences"](text), prose["LONGEST"]))
    assert len(found) == len(words), found
    assert all(word in fault for word, fault in zip(words, found, strict=True))


def test_messages_of_errors_are_read(prose: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('raise InputError(f"{path} is no folder: make " "it")\n')
    assert [text for _, text in prose["messages"](tmp_path / "a.py")] == [" is no folder: make it"]


def test_numbers_of_a_text_are_found_and_a_changed_table_is_written_again() -> None:
    figures = runpy.run_path(str(SCRIPTS / "figures.py"))
    text = "# A\nIt is 2.5 times, [-0.3, +1.2], `9.9`, [2501.09425](https://x/2501.09425).\n## B\nNone in 10.\n"
    assert list(figures["numbers"](text)) == [("A", ["+1.2", "-0.3", "2.5"])]
    page = (SCRIPTS.parents[1] / "README.md").read_text("utf-8")
    assert figures["written"](page) == page
    assert figures["written"](page.replace("**40.3**", "**41.3**")) == page


def test_every_section_with_numbers_has_a_command_and_a_commit() -> None:
    known = json.loads((SCRIPTS.parent / "figures" / "texts.json").read_text("utf-8"))
    entries = [entry for sections in known.values() for entry in sections.values()]
    assert len(entries) > 30
    assert [one for one in entries if "commit" not in one and "not measured" not in one["command"]] == []
