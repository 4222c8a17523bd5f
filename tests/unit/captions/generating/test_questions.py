"""Questions name the language of their answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from components.captions.generating.questions import questions_of
from components.captions.prompting.request import InputRow
from components.core.settings import Settings

ENGINE: Any = SimpleNamespace(model="m")


@pytest.mark.parametrize(
    ("language", "ending"),
    [("en", ""), (None, ""), ("de", " Answer in German."), (("ja", "de"), " Answer in the language of the caption.")],
)
def test_questions_name_the_language_of_the_answer(settings: Settings, language: Any, ending: str) -> None:
    validation = settings.validation.model_copy(update={"language": language})
    questions = questions_of(settings.model_copy(update={"validation": validation}), "paraphrase_1", ENGINE)
    (_, question) = questions.about(InputRow("a", 0, {"caption": "ein Hund"}), 0).chat[-1]
    assert question == f'Paraphrase the given caption "ein Hund" concisely while preserving the meaning.{ending}'
    judge = questions_of(settings.model_copy(update={"validation": validation}), "judge_paraphrase", ENGINE)
    row = InputRow("a", 0, {"caption": "ein Hund", "paraphrase": "ein Hund"})
    assert "Answer in" not in judge.about(row, 0).chat[-1][1]
