"""Reads the body of an embeddings request and refuses what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from components.serving.errors import Refusal
from components.serving.limits import Limits

_WANTED = {
    "input": "give a text or a list of texts",
    "model": "give the name of a model: GET /v1/models lists them",
    "encoding_format": "give 'float' or 'base64'",
    "dimensions": "give a whole number, or leave it out",
    "user": "give a text, or leave it out",
}


class Question(BaseModel):
    """What a client asks. `user` is taken because clients send it, and ignored."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    input: Any
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None

    @field_validator("input")
    @classmethod
    def _read_texts(cls, given: Any) -> list[str]:
        # Checked here, because of a list with a million wrong items one error is enough.
        texts = given if isinstance(given, list) else [given]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError
        return texts

    @property
    def texts(self) -> list[str]:
        """The texts to embed."""
        found: list[str] = self.input
        return found


def read_question(body: bytes, limits: Limits) -> Question:
    """The question in the body of a request.

    Raises:
        Refusal: it is no JSON, has not the shape of OpenAI's, or passes a limit.
    """
    try:
        question = Question.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error.errors(include_url=False, include_context=False)[0]) from None
    _check_texts(question.texts, limits)
    return question


def _refusal(error: Mapping[str, Any]) -> Refusal:
    if error["type"] == "json_invalid":
        return Refusal(400, f"The body cannot be read: {error['msg']}.", "invalid_json")
    param = str(error["loc"][0])[:100] if error["loc"] else None
    if param is None:
        return Refusal(400, "The body must be a JSON object.", "invalid_json")
    if error["type"] == "missing":
        return Refusal(400, f"'{param}' is missing: {_WANTED[param]}.", "missing_value", param)
    if error["type"] == "extra_forbidden":
        return Refusal(400, f"'{param}' is unknown: give {', '.join(_WANTED)}.", "unknown_parameter", param)
    if param == "input" and _holds_tokens(error["input"]):
        return Refusal(
            400, "'input' has token numbers, which mean nothing here: give texts.", "tokens_not_supported", param
        )
    return Refusal(400, f"'{param}' is wrong: {_WANTED[param]}.", "invalid_value", param)


def _holds_tokens(value: Any) -> bool:
    """Whether a value is one of the two forms of token numbers that OpenAI takes: a list, or a list of lists."""
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first[0] if isinstance(first, list) and first else first, int)


def _check_texts(texts: list[str], limits: Limits) -> None:
    if not 0 < len(texts) <= limits.texts:
        told = f"'input' has {len(texts)} texts: give 1 to {limits.texts}."
        raise Refusal(400, told, "too_many_texts" if texts else "invalid_value", "input")
    longest_word = re.compile(rf"\S{{{limits.word + 1}}}")
    for row, text in enumerate(texts):
        if not text:
            raise Refusal(400, f"Text {row} of 'input' is empty.", "invalid_value", "input")
        if len(text) > limits.text:
            told = f"Text {row} of 'input' has {len(text)} characters: give at most {limits.text}."
            raise Refusal(400, told, "text_too_long", "input")
        if longest_word.search(text):
            told = f"Text {row} of 'input' has a word of more than {limits.word} characters."
            raise Refusal(400, told, "text_too_long", "input")
