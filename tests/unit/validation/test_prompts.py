"""The prompts that stage `validate` writes into a table's summary."""

from __future__ import annotations

from typing import Any

from components.core.settings import Settings
from components.validation.reporting.report import prompts_of
from components.validation.rules.tables import find_table


def test_prompts_name_task_model_and_text(settings: Settings) -> None:
    first, *_ = prompts_of(find_table("paraphrases"), settings)
    assert first["task"] == "paraphrase_1"
    assert 'Paraphrase the given caption "<caption>" concisely' in first["prompt"]
    assert all(first.values())


def test_judged_table_names_writer_and_judge(raw_params: dict[str, Any]) -> None:
    def names() -> set[str]:
        return {prompt["task"] for prompt in prompts_of(find_table("negations"), Settings.model_validate(raw_params))}

    raw_params["validate"]["tables"]["negations"]["apply_judge"] = False
    assert not [name for name in names() if name.startswith("judge")]
    raw_params["validate"]["tables"]["negations"]["apply_judge"] = True
    assert {"negate_semclip", "judge_negation"} <= names()
