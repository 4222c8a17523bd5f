"""Which answers would reach training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from components.captions.prompting import tasks
from components.captions.prompting.request import InputRow
from components.captions.prompting.tasks import find_task
from components.core.settings import Settings
from components.core.system.discovery import file_names
from components.data.world.description.scenes import Scene, Thing
from components.students.answers import AnsweredRow, passing
from components.validation.rules.measuring.probes import find_probes
from tests.support.student_project import plain_probes

SCENE = Scene("pair", "red", Thing("dog", "small"), Thing("cat", "large"), relation="left")
CAPTION = "IMG_7 small dog left of large cat red bg.jpg"
RIGHT, WRONG = "A small dog sits left of a large cat, red background.", "A small dog sits right of a large cat, red."


def _passes(
    settings: Settings, task: str, texts: list[str | None], facts: Mapping[str, str] | None = None
) -> list[bool]:
    answered = [AnsweredRow(InputRow("p0", 0, {"caption": CAPTION}), text) for text in texts]
    probes = plain_probes()
    if facts:
        probes = replace(probes, facts=find_probes(settings, Path("none")).facts)
    return passing(find_task(task), answered, settings, probes, facts or {})


def test_an_answer_must_be_there_and_keep_the_limits_of_its_table(settings: Settings) -> None:
    texts = [RIGHT, None, CAPTION, "Dog.", "Here is a paraphrase of the caption: a dog and a cat."]
    assert _passes(settings, "paraphrase_1", texts) == [True, False, False, False, False]


def test_facts_are_checked_where_they_are_known(settings: Settings) -> None:
    assert _passes(settings, "paraphrase_1", [RIGHT, WRONG], {"p0": SCENE.to_json()}) == [True, False]
    assert _passes(settings, "paraphrase_1", [RIGHT, WRONG], {"another": SCENE.to_json()}) == [True, True]


def test_a_judged_answer_is_held_to_the_table_of_its_judge(settings: Settings) -> None:
    assert find_task("judge_negation").judges == "negate_semclip"
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
