"""SimpleNeg with a scripted judge: which pictures are asked about what, and which of them are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.captions.prompting.request import PICTURE, Request
from tests.support.published import refused, scored
from tests.unit.data.test_sets.writing import write_files
from tests.unit.research.experiments.conftest import ScriptedModel

QUERY = ["a desk with no lamp", "is there a lamp?", "is there a desk?"]
OTHER = ["a dog not eating", "is it eating?", "is there a dog?"]
SHADES = {f"val2014/{number}.png": (255, 30 * number, 0) for number in range(6)}
"""The first is the most similar to a text that is red and not green, and so on."""


def test_only_pictures_of_the_rest_are_asked_for_the_excluded(tmp_path: Path) -> None:
    """The query's five pictures: desk and no lamp, desk and lamp, no desk, desk and a long answer, desk and no lamp."""
    write_files(tmp_path, {"simpleneg.json": [QUERY, OTHER], **SHADES})
    numbers = {(tmp_path / name).read_bytes(): number for number, name in enumerate(SHADES)}
    lamp = {0: "No.", 1: "Yes", 3: "no, there is not", 4: "NO"}

    def reply(request: Request) -> str:
        text, number = request.chat[-1][1], numbers[request.pictures[0].data]
        assert text in [f"{PICTURE}{one}\nAnswer the question with a yes or no." for one in (*QUERY[1:], *OTHER[1:])]
        return lamp[number] if "lamp" in text else "yes" if "desk" in text and number != 2 else "no"

    model = ScriptedModel(reply)
    table = dict.fromkeys((QUERY[0], OTHER[0]), (1, -5, 0))
    assert scored("simple_neg", tmp_path, table, options={"judge": model.judge(tmp_path)}).values == {
        "accuracy_at_1": [1, 0], "accuracy_at_5": [0.4, 0], "context_at_1": [1, 0], "context_at_5": [0.8, 0],
    }  # fmt: skip
    assert len(model.asked) == 5 + 4 + 5


@pytest.mark.parametrize("content", [[QUERY, ["only one"]], {}])
def test_rows_of_another_form_are_refused(tmp_path: Path, content: object) -> None:
    write_files(tmp_path, {"simpleneg.json": content, **SHADES})
    refused("simple_neg", tmp_path, r"1 rows lack query or excluded or rest \(row [01], counted from 0\)")
