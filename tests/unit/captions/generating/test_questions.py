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
    ("language", "caption", "ending"),
    [
        ("en", "ein Hund", ""),
        ("de", "ein Hund", " Answer in German."),
        # Of several languages, and of any, that of the caption; the first one where it is not clear.
        (("de", "en"), "zwei Kinder im Gras", " Answer in German."),
        (("en", "de"), "zwei Kinder im Gras", " Answer in German."),
        (("de", "en"), "two children on grass", ""),
        (("en", "de"), "two children on grass", ""),
        (("ja", "de"), "42", " Answer in Japanese."),
        (("en", "de"), "42", ""),
        (None, "Blaue Winterjacke für Herren", " Answer in German."),
        (None, "赤い犬がソファの上で寝ている", " Answer in Japanese."),
        (None, "a blue winter jacket for men", ""),
        (None, "42", ""),
    ],
)
def test_questions_name_the_language_of_the_answer(
    settings: Settings, language: Any, caption: str, ending: str
) -> None:
    validation = settings.validation.model_copy(update={"language": language})
    questions = questions_of(settings.model_copy(update={"validation": validation}), "paraphrase_1", ENGINE)
    (_, question) = questions.about(InputRow("a", 0, {"caption": caption}), 0).chat[-1]
    assert question == f'Paraphrase the given caption "{caption}" concisely while preserving the meaning.{ending}'
    judge = questions_of(settings.model_copy(update={"validation": validation}), "judge_paraphrase", ENGINE)
    row = InputRow("a", 0, {"caption": "ein Hund", "paraphrase": "ein Hund"})
    assert "Answer in" not in judge.about(row, 0).chat[-1][1]
