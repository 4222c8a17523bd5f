"""Requests are parsed and refused with one clear error each; responses and errors have OpenAI's format."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from pydantic import ValidationError

from components.core.system.errors import InputError
from components.serving.server.address import ServingLimits
from components.serving.server.messages import ApiError, EncodeResponse, read_request

LIMITS = ServingLimits(text=50, word=20, texts=3)
VECTORS = [np.array([0.6, -0.8], np.float32), np.array([1 / 3, 2 / 3], np.float32)]


def test_a_text_or_a_list_of_texts() -> None:
    assert read_request(b'{"input": "a dog"}', LIMITS).texts == ["a dog"]
    whole = {"input": ["a", "b"], "model": "m", "encoding_format": "base64", "dimensions": 4, "user": "u"}
    assert read_request(json.dumps(whole).encode(), LIMITS).model_dump() == whole
    for texts in (["a " * 25, "b" * 20, "c"], ["<b> &lt;</b>", "\x00\x1b[31m\x07\r\n", "😀 caf\u00e9"]):
        assert read_request(json.dumps({"input": texts}).encode(), LIMITS).texts == texts


def test_wrong_requests_get_one_clear_error() -> None:
    for body, code, param in (
        (b"", "invalid_json", None),
        (b'{"input": "\xff\xfe"}', "invalid_json", None),
        (b'{"input": "\\ud800"}', "invalid_json", None),
        (b'{"input": "a\x00b"}', "invalid_json", None),
        (b'{"input": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", "invalid_json", None),
        (b'["a"]', "invalid_json", None),
        (b"{}", "missing_value", "input"),
        (b'{"input": []}', "invalid_value", "input"),
        (b'{"input": ""}', "invalid_value", "input"),
        (b'{"input": ["a", 1]}', "invalid_value", "input"),
        (b'{"input": [1, 2]}', "tokens_not_supported", "input"),
        (b'{"input": [[1, 2], [3]]}', "tokens_not_supported", "input"),
        (b'{"input": ["a", "b", "c", "d"]}', "too_many_texts", "input"),
        (b'{"input": "' + b"a " * 26 + b'"}', "text_too_long", "input"),
        (b'{"input": "a ' + b"b" * 21 + b'"}', "text_too_long", "input"),
        (b'{"input": "a", "encoding_format": "int8"}', "invalid_value", "encoding_format"),
        (b'{"input": "a", "dimensions": 1e999}', "invalid_value", "dimensions"),
        (b'{"input": "a", "stream": true}', "unknown_parameter", "stream"),
    ):
        with pytest.raises(ApiError) as caught:
            read_request(body, LIMITS)
        error = caught.value
        assert (error.status, error.code, error.param) == (400, code, param), body[:50]
        assert len(error.message) < 200


def test_a_hundred_thousand_wrong_items_cause_one_error_and_a_small_queue_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        read_request(json.dumps({"input": [None] * 100_000}).encode(), ServingLimits())
    assert isinstance(caught.value.__context__, ValidationError)
    assert caught.value.__context__.error_count() == 1
    with pytest.raises(InputError, match="--max-queue 8 is too small: give at least 9"):
        ServingLimits(texts=9, queue=8)


def test_vectors_and_errors_have_openais_format() -> None:
    for kind in ("float", "base64"):
        content = json.loads(bytes(EncodeResponse("text-encoder/3", VECTORS, 7).response(kind).body))
        found = [row.pop("embedding") for row in content["data"]]
        vectors = [np.frombuffer(base64.b64decode(one), "<f4") for one in found] if kind == "base64" else found
        np.testing.assert_array_equal(np.array(vectors, np.float32), np.stack(VECTORS))
        assert content == {
            "object": "list", "data": [{"object": "embedding", "index": number} for number in (0, 1)],
            "model": "text-encoder/3", "usage": {"prompt_tokens": 7, "total_tokens": 7},
        }  # fmt: skip
    for status, kind in ((400, "invalid_request_error"), (429, "rate_limit_error"), (500, "server_error")):
        response = ApiError(status, 'No "<b>".', "code", "input", retry_after=2).response()
        error = {"message": 'No "<b>".', "type": kind, "param": "input", "code": "code"}
        assert (response.status_code, json.loads(bytes(response.body))) == (status, {"error": error})
        assert response.headers["retry-after"] == "2"
