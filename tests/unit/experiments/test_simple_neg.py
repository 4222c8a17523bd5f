"""SimpleNeg with a scripted judge: which pictures are asked about what, and which of them are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.benchmarks.published import find_published
from components.captions.prompting.request import PICTURE, Request
from components.core.system.errors import InputError
from components.test_sets.files import TestSetFiles
from components.test_sets.readers.simple_neg import TEST_SETS
from tests.support.toy_context import toy_context
from tests.unit.experiments.conftest import ScriptedModel
from tests.unit.test_sets.writing import write_files

QUERY, OTHER = (
    ["a desk with no lamp", "is there a lamp?", "is there a desk?"],
    ["a dog not eating", "eats it?", "a dog?"],
)
SHADES = {f"{number}.png": (255, 30 * number, 0) for number in range(6)}
"""The first is the most similar to a text that is red and not green, and so on."""


def test_only_pictures_of_the_rest_are_asked_for_the_excluded(tmp_path: Path) -> None:
    """The query's five pictures: desk and no lamp, desk and lamp, no desk, desk and a long answer, desk and no lamp."""
    write_files(tmp_path, {"simpleneg.json": [QUERY, OTHER], **{f"val2014/{name}": c for name, c in SHADES.items()}})
    numbers = {(tmp_path / "val2014" / name).read_bytes(): int(name[0]) for name in SHADES}
    lamp = {0: "No.", 1: "Yes", 3: "no, there is not", 4: "NO"}

    def reply(request: Request) -> str:
        text, number = request.chat[-1][1], numbers[request.pictures[0].data]
        assert text.startswith(PICTURE)
        assert text.endswith("?\nAnswer the question with a yes or no.")
        return lamp[number] if "lamp" in text else "yes" if "desk" in text and number != 2 else "no"

    model = ScriptedModel(reply)
    options = {"judge": model.judge(tmp_path)}
    table = dict.fromkeys((QUERY[0], OTHER[0]), (1, -5, 0))
    context = toy_context(tmp_path, table, allow_partial=True, options=options)
    found = find_published("simple_neg").score(context).values
    assert {name: values.tolist() for name, values in found.items()} == {
        "simple_neg/accuracy_at_1": [1, 0], "simple_neg/accuracy_at_5": [0.4, 0],
        "simple_neg/context_at_1": [1, 0], "simple_neg/context_at_5": [0.8, 0],
    }  # fmt: skip
    assert len(model.asked) == 5 + 4 + 5
    assert context.notes == ["val2014: images: 6 found, 40,504 published"]
    tested = TEST_SETS[0].read(TestSetFiles(tmp_path, allow_partial=True))
    assert tested.texts == [QUERY[0], OTHER[0]]
    assert [path.name for path in tested.files] == list(SHADES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([QUERY, ["only one"]], r"1 rows lack query or excluded or rest \(row 1, counted from 0\)"),
        ({}, "1 rows lack query"),
        ([QUERY], "val2014: images: 0 found, 40,504 published"),
    ],
)
def test_files_that_are_not_as_published_are_refused(tmp_path: Path, content: object, message: str) -> None:
    write_files(tmp_path, {"simpleneg.json": content, "val2014/readme": ""})
    with pytest.raises(InputError, match=message):
        find_published("simple_neg").score(toy_context(tmp_path, {}))
