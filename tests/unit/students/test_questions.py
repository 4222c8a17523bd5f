"""Answers of one engine to several tasks, without the pipeline's tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.captions.generating.store import GenerationStore
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.students.answers import AnsweredRow, ask_tasks
from tests.support.student_project import CAPTIONS, Rewriter, good, make_project


@pytest.fixture
def settings(tmp_path: Path, raw_params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(tmp_path)
    return make_project(tmp_path, raw_params, {})


def _ask(settings: Settings, tasks: list[str], engine: Rewriter, captions: int = 5) -> dict[str, list[AnsweredRow]]:
    store = GenerationStore("sqlite:///store.db")
    found = dict(ask_tasks(settings, tasks, captions, engine, store, Path("own")))
    store.close()
    return found


def test_a_task_asks_about_the_same_engines_answers_to_the_one_before(settings: Settings) -> None:
    found = _ask(settings, ["paraphrase_2", "paraphrase_1"], Rewriter(good))
    assert list(found) == ["paraphrase_1", "paraphrase_2"]
    assert [one.source.inputs["caption"] for one in found["paraphrase_1"]] == CAPTIONS[:5]
    first = [one.text for one in found["paraphrase_1"]]
    assert first == [good([caption]) for caption in CAPTIONS[:5]]
    assert [one.source.inputs["paraphrase_1"] for one in found["paraphrase_2"]] == first


def test_each_row_is_asked_once_with_the_tasks_own_sampling(settings: Settings) -> None:
    engine = Rewriter(good)
    _ask(settings, ["paraphrase_1", "difference"], engine)
    asked = settings.synthesize.tasks["paraphrase_1"]
    assert asked.samples == 2
    first = [request for request in engine.asked if request.task == "paraphrase_1"]
    assert len(first) == 5
    assert {(one.sampling.temperature, one.sampling.top_p) for one in first} == {(asked.temperature, asked.top_p)}
    assert len(engine.asked) == 10


@pytest.mark.parametrize(
    ("tasks", "fault"),
    [
        (["paraphrase_2"], "task 'paraphrase_2' asks about the answers to 'paraphrase_1': add that one too"),
        (["paraphrase_3"], r"params\.yaml has no block synthesize\.tasks\.paraphrase_3"),
    ],
)
def test_a_task_that_cannot_be_asked_is_named(settings: Settings, tasks: list[str], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        _ask(settings, tasks, Rewriter(good))
