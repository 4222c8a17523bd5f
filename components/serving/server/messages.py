"""Requests, responses and errors of the server, in the format of OpenAI's embeddings API."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import orjson
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from starlette.responses import Response

from components.serving.server.address import ServingLimits

_ERROR_TYPES = {429: "rate_limit_error", 500: "server_error", 503: "server_error"}
_EXPECTED = {
    "input": "give a text or a list of texts",
    "model": "give the name of a model: GET /v1/models lists them",
    "encoding_format": "give 'float' or 'base64'",
    "dimensions": "give a whole number, or leave it out",
    "user": "give a text, or leave it out",
}


class ApiError(Exception):
    """An error response: one sentence for the client without details of this machine, and a machine-readable code.

    Args:
        retry_after: seconds after which the same request may succeed.
    """

    def __init__(
        self, status: int, message: str, code: str, param: str | None = None, *, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.retry_after = retry_after

    def response(self) -> Response:
        kind = _ERROR_TYPES.get(self.status, "invalid_request_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        headers = {}
        if self.retry_after is not None:
            headers["retry-after"] = str(self.retry_after)
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return Response(orjson.dumps({"error": error}), self.status, headers, "application/json")


class EmbeddingRequest(BaseModel):
    """The body of a request. `user` is accepted because clients send it, and ignored."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    input: Any
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None

    @field_validator("input")
    @classmethod
    def _read_texts(cls, given: Any) -> list[str]:
        # Checked here, so that a list with a million wrong items causes only one error.
        texts = given if isinstance(given, list) else [given]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError
        return texts

    @property
    def texts(self) -> list[str]:
        texts: list[str] = self.input
        return texts


def read_request(body: bytes, limits: ServingLimits) -> EmbeddingRequest:
    """Parse the body of a request.

    Raises:
        ApiError: it is not JSON, does not have OpenAI's format, or exceeds a limit.
    """
    try:
        request = EmbeddingRequest.model_validate_json(body)
    except ValidationError as error:
        raise _error_of(error.errors(include_url=False, include_context=False)[0]) from None
    _check_texts(request.texts, limits)
    return request


def _error_of(error: Mapping[str, Any]) -> ApiError:
    if error["type"] == "json_invalid":
        return ApiError(400, f"The body cannot be read: {error['msg']}.", "invalid_json")
    param = str(error["loc"][0])[:100] if error["loc"] else None
    if param is None:
        return ApiError(400, "The body must be a JSON object.", "invalid_json")
    if error["type"] == "missing":
        return ApiError(400, f"'{param}' is missing: {_EXPECTED[param]}.", "missing_value", param)
    if error["type"] == "extra_forbidden":
        return ApiError(400, f"'{param}' is unknown: give {', '.join(_EXPECTED)}.", "unknown_parameter", param)
    if param == "input" and _holds_tokens(error["input"]):
        return ApiError(400, "'input' has token numbers: give texts instead.", "tokens_not_supported", param)
    return ApiError(400, f"'{param}' is wrong: {_EXPECTED[param]}.", "invalid_value", param)


def _holds_tokens(value: Any) -> bool:
    """Whether a value has one of OpenAI's two forms of token numbers: a list, or a list of lists."""
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first[0] if isinstance(first, list) and first else first, int)


def _check_texts(texts: list[str], limits: ServingLimits) -> None:
    if not 0 < len(texts) <= limits.texts:
        message = f"'input' has {len(texts)} texts: give 1 to {limits.texts}."
        raise ApiError(400, message, "too_many_texts" if texts else "invalid_value", "input")
    too_long_word = re.compile(rf"\S{{{limits.word + 1}}}")
    for row, text in enumerate(texts):
        if not text:
            raise ApiError(400, f"Text {row} of 'input' is empty.", "invalid_value", "input")
        if len(text) > limits.text:
            message = f"Text {row} of 'input' has {len(text)} characters: give at most {limits.text}."
            raise ApiError(400, message, "text_too_long", "input")
        if too_long_word.search(text):
            message = f"Text {row} of 'input' has a word of more than {limits.word} characters."
            raise ApiError(400, message, "text_too_long", "input")


@dataclass(frozen=True)
class EncodeResponse:
    """The vectors of a request's texts.

    Attributes:
        model: the version that computed them, such as `text-encoder/3`.
        vectors: a unit vector `[dim]`, float32, for each text in order.
    """

    model: str
    vectors: list[npt.NDArray[np.float32]]
    tokens: int

    def response(self, encoding_format: str) -> Response:
        # Clients expect little-endian float32 on every machine.
        content = {
            "object": "list",
            "data": [
                {
                    "object": "embedding",
                    "index": row,
                    "embedding": base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
                    if encoding_format == "base64"
                    else np.ascontiguousarray(vector),
                }
                for row, vector in enumerate(self.vectors)
            ],
            "model": self.model,
            "usage": {"prompt_tokens": self.tokens, "total_tokens": self.tokens},
        }
        body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
        # A header holds ASCII, and an encoder's folder may have any name.
        return Response(body, headers={"x-cliptune-model": quote(self.model, safe="/@")}, media_type="application/json")
