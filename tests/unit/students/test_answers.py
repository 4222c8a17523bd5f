"""Answers of one engine to several tasks, without the pipeline's tables, and which of them would reach training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.captions.generating.store import GenerationStore
from components.captions.prompting import tasks
from components.captions.prompting.request import InputRow
from components.captions.prompting.tasks import find_task
from components.core.settings import Settings
from components.core.system.discovery import file_names
from components.core.system.errors import InputError
from components.data.world.description.scenes import Scene, Thing
from components.students.answers import AnsweredRow, ask_tasks, passing
from components.validation.rules.measuring.probes import find_probes
from tests.support.student_project import CAPTIONS, Rewriter, good, make_project, plain_probes

SCENE = Scene("pair", "red", Thing("dog", "small"), Thing("cat", "large"), relation="left")
CAPTION = "IMG_7 small dog left of large cat red bg.jpg"
RIGHT, WRONG = "A small dog sits left of a large cat, red background.", "A small dog sits right of a large cat, red."


@pytest.fixture
def project(tmp_path: Path, raw_params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(tmp_path)
    return make_project(tmp_path, raw_params, {})


def _ask(settings: Settings, tasks: list[str], engine: Rewriter) -> dict[str, list[AnsweredRow]]:
    store = GenerationStore("sqlite:///store.db")
    found = dict(ask_tasks(settings, tasks, 5, engine, store, Path("own")))
    store.close()
    return found


def test_a_task_reads_the_same_engines_answers_to_the_task_before(project: Settings) -> None:
    found = _ask(project, ["paraphrase_2", "paraphrase_1"], Rewriter(good))
    assert list(found) == ["paraphrase_1", "paraphrase_2"]
    assert [one.source.inputs["caption"] for one in found["paraphrase_1"]] == CAPTIONS[:5]
    first = [one.text for one in found["paraphrase_1"]]
    assert first == [good([caption]) for caption in CAPTIONS[:5]]
    assert [one.source.inputs["paraphrase_1"] for one in found["paraphrase_2"]] == first


def test_each_row_is_sent_once_with_the_tasks_own_sampling(project: Settings) -> None:
    engine = Rewriter(good)
    _ask(project, ["paraphrase_1", "difference"], engine)
    task = project.synthesize.tasks["paraphrase_1"]
    assert task.samples == 2
    first = [request.sampling for request in engine.asked if request.task == "paraphrase_1"]
    assert [(one.temperature, one.top_p) for one in first] == [(task.temperature, task.top_p)] * 5
    assert len(engine.asked) == 10


def test_a_task_without_its_input_or_block_is_named(project: Settings) -> None:
    for name, fault in (
        ("paraphrase_2", "task 'paraphrase_2' needs the answers of 'paraphrase_1': add that task"),
        ("paraphrase_3", r"params\.yaml has no block synthesize\.tasks\.paraphrase_3"),
    ):
        with pytest.raises(InputError, match=fault):
            _ask(project, [name], Rewriter(good))


def _passes(
    settings: Settings, task: str, texts: list[str | None], facts: Mapping[str, str] | None = None
) -> list[bool]:
    answered = [AnsweredRow(InputRow("p0", 0, {"caption": CAPTION}), text) for text in texts]
    probes = plain_probes()
    if facts:
        probes = replace(probes, facts=find_probes(settings, Path("none")).facts)
    return passing(find_task(task), answered, settings, probes, facts or {})


def test_an_answer_must_keep_the_limits_of_its_table_and_the_facts_where_they_are_known(settings: Settings) -> None:
    texts = [RIGHT, None, CAPTION, "Dog.", "Here is a paraphrase of the caption: a dog and a cat."]
    assert _passes(settings, "paraphrase_1", texts) == [True, False, False, False, False]
    assert _passes(settings, "paraphrase_1", [RIGHT, WRONG], {"p0": SCENE.to_json()}) == [True, False]
    assert _passes(settings, "paraphrase_1", [RIGHT, WRONG], {"another": SCENE.to_json()}) == [True, True]
    assert find_task("judge_negation").judges == "negate_semclip", "a judged answer is held to its judge's table"
    texts = ["There is no small dog left of a large cat.", "A small dog is left of a large cat there."]
    assert _passes(settings, "negate_semclip", texts) == [True, False]


@pytest.mark.parametrize("name", file_names(tasks.__path__))
def test_the_answers_to_every_task_can_be_checked(name: str, settings: Settings) -> None:
    task = find_task(name)
    inputs = {text: f"a {text} dog" for text in task.inputs}
    source = InputRow("p0", 0, inputs, "p1" if "other_caption" in inputs else None)
    passes = passing(task, [AnsweredRow(source, "0.5"), AnsweredRow(source, None)], settings, plain_probes(), {})
    assert len(passes) == 2
    assert passes[1] is False
