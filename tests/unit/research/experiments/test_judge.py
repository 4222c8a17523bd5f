"""The judge answers through an engine, and its answers are cached: differences with and without images, SimpleNeg."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from components.captions.prompting.request import PICTURE, Request
from components.captions.prompting.task import chat
from components.core.system.errors import InputError
from components.core.tables.records import DIFFERENCES, PAIRS
from research.experiments.parts.judge import Judge, JudgeQuestion, judge_of, judged
from tests.support.fake_engine import FakeEngine
from tests.support.published import refused, scored
from tests.support.toy_context import toy_context
from tests.unit.data.test_sets.writing import write_files


def _last_word(request: Request) -> str | None:
    word = request.chat[-1][1].split()[-1]
    return None if word == "silence" else word


def _questions(*words: str) -> list[JudgeQuestion]:
    return [JudgeQuestion(chat("You judge.", f"Say {word}")) for word in words]


def _number(answer: str) -> float | None:
    return float(answer) if answer.isdecimal() else None


def test_scores_are_those_of_the_answers_and_answers_are_cached(tmp_path: Path) -> None:
    model = FakeEngine(_last_word)
    options = {"judge": Judge(model, f"sqlite:///{tmp_path}/store.db")}
    context = toy_context(tmp_path, {}, options=options, allow_partial=True)
    values, rows = judged(context, "test", _questions("3", "silence", "nonsense", "5"), _number)
    assert (values.tolist(), rows.tolist()) == ([3, 5], [0, 3])
    assert context.notes == ["judge fake: 2 of 4 scores are unusable"]
    judged(context, "test", _questions("5", "3", "nonsense"), _number)
    assert len(model.asked) == 4
    context = toy_context(tmp_path, {}, options=options)
    for words, message in ((("3", "nonsense"), "1 of 2 scores are unusable"), (("nonsense",), "no usable score")):
        with pytest.raises(InputError, match=message):
            judged(context, "test", _questions(*words), _number)


def test_the_judge_is_named_in_params(tmp_path: Path) -> None:
    judge = judge_of(toy_context(tmp_path, {}, options={"judge": "student"}))
    assert judge.store == "sqlite:///state/generations.db"
    with pytest.raises(InputError, match=r"model 'nobody' is not in synthesize.llms"):
        judge_of(toy_context(tmp_path, {}, options={"judge": "nobody"}))


def _critic() -> FakeEngine:
    """Gives a difference that is called good 0.75, a bad one 0.25, and others a score out of range."""

    def reply(request: Request) -> str:
        text = request.chat[-1][1]
        score = 0.75 if "good one" in text else 0.25 if "bad one" in text else 7
        content = {"image1_description": "a", "image2_description": "b", "score": score, "reasoning": "c"}
        return f"```json\n{json.dumps(content)}\n```"

    return FakeEngine(reply)


def _write_differences(folder: Path, *differences: str) -> None:
    count = len(differences)
    columns: dict[str, list[object]] = {
        "id": ["p0"] * count, "other_id": ["p1"] * count, "sample": [0] * count, "caption": ['a "cat"'] * count,
        "other_caption": ["a dog"] * count, "difference": list(differences), "similarity": [0.5] * count,
    }  # fmt: skip
    DIFFERENCES.write(folder / "differences.parquet", columns)


def test_scores_without_images(tmp_path: Path) -> None:
    _write_differences(tmp_path, "a good one", "a bad one", "another good one")
    critic = _critic()
    found = scored("caption_quality", tmp_path, options={"judge": Judge(critic, f"sqlite:///{tmp_path}/store.db")})
    assert sorted(found.values["captions_only/score"]) == [0.25, 0.75, 0.75]
    assert sum(found.values["captions_only/good_share"]) == 2
    assert found.notes == ["differences.parquet: 3 differences, the paper judges 300"]
    assert all("Image 1 caption: a 'cat'" in request.chat[-1][1] for request in critic.asked)


def test_the_judge_sees_both_images_where_there_are_any(tmp_path: Path, png: Any) -> None:
    _write_differences(tmp_path, "a good one")
    pairs: dict[str, list[object]] = {
        "id": ["p1", "p0"], "image_id": ["red", "green"], "image": [png((255, 0, 0)), png((0, 128, 0))],
        "caption": ["a dog", "a cat"], "facts": [None] * 2,
    }  # fmt: skip
    PAIRS.write(tmp_path / "pairs.parquet", pairs)
    critic = _critic()
    found = scored("caption_quality", tmp_path, options={"judge": Judge(critic, f"sqlite:///{tmp_path}/store.db")})
    assert found.values["with_images/score"] == [0.75]
    assert [picture.data for picture in critic.asked[0].pictures] == pairs["image"][::-1]


def test_wrong_and_missing_tables(tmp_path: Path) -> None:
    judge = {"judge": Judge(_critic(), f"sqlite:///{tmp_path}/store.db")}
    for differences, options, message in (
        (["odd"], {}, "give --benchmark-option judge="),
        (["odd"], judge, "judge fake returned no usable score"),
        ([], judge, r"differences.parquet has no rows"),
    ):
        _write_differences(tmp_path, *differences)
        refused("caption_quality", tmp_path, message, allow_partial=True, options=options)


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

    model = FakeEngine(reply)
    table = dict.fromkeys((QUERY[0], OTHER[0]), (1, -5, 0))
    options = {"judge": Judge(model, f"sqlite:///{tmp_path}/store.db")}
    assert scored("simple_neg", tmp_path, table, options=options).values == {
        "accuracy_at_1": [1, 0], "accuracy_at_5": [0.4, 0], "context_at_1": [1, 0], "context_at_5": [0.8, 0],
    }  # fmt: skip
    assert len(model.asked) == 5 + 4 + 5


@pytest.mark.parametrize("content", [[QUERY, ["only one"]], {}])
def test_queries_of_another_form_are_refused(tmp_path: Path, content: object) -> None:
    write_files(tmp_path, {"simpleneg.json": content, **SHADES})
    refused("simple_neg", tmp_path, r"1 rows lack query or excluded or rest \(row [01], counted from 0\)")
