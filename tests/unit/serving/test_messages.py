"""Requests are parsed and refused with one clear error each; responses and errors have OpenAI's format."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from pydantic import ValidationError

from components.core.system.errors import InputError
from components.serving.address import ServingLimits
from components.serving.messages import ApiError, EncodeResponse, read_request

LIMITS = ServingLimits(text=50, word=20, texts=3)
VECTORS = [np.array([0.6, -0.8], np.float32), np.array([1 / 3, 2 / 3], np.float32)]


def test_a_text_or_a_list_of_texts() -> None:
    assert read_request(b'{"input": "a dog"}', LIMITS).texts == ["a dog"]
    whole = {"input": ["a", "b"], "model": "m", "encoding_format": "base64", "dimensions": 4, "user": "u"}
    request = read_request(json.dumps(whole).encode(), LIMITS)
    assert (request.texts, request.model, request.encoding_format) == (["a", "b"], "m", "base64")
    assert request.dimensions == 4
    for texts in (
        ["a " * 25, "b" * 20, "c"],
        ["<b o='alert(1)'> &lt;</b>"],
        ["\x00\x1b[31m\x07\r\n"],
        ["😀 caf\u00e9", " "],
    ):
        assert read_request(json.dumps({"input": texts}).encode(), LIMITS).texts == texts


def test_wrong_requests_get_one_clear_error() -> None:
    cases: list[tuple[bytes, str, str | None]] = [
        (b"", "invalid_json", None),
        (b"{", "invalid_json", None),
        (b'{"input": "\xff\xfe"}', "invalid_json", None),
        (b'{"input": "\\ud800"}', "invalid_json", None),
        (b'{"input": "\\udc00 a"}', "invalid_json", None),
        (b'{"input": "a\x00b"}', "invalid_json", None),
        (b"[" * 100_000, "invalid_json", None),
        (b'{"input": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", "invalid_json", None),
        (b'{"a": ' * 50_000, "invalid_json", None),
        (b'["a"]', "invalid_json", None),
        (b"null", "invalid_json", None),
        (b"{}", "missing_value", "input"),
        (b'{"input": null}', "invalid_value", "input"),
        (b'{"input": []}', "invalid_value", "input"),
        (b'{"input": ""}', "invalid_value", "input"),
        (b'{"input": ["a", ""]}', "invalid_value", "input"),
        (b'{"input": ["a", 1]}', "invalid_value", "input"),
        (b'{"input": {"a": 1}}', "invalid_value", "input"),
        (b'{"input": [1, 2]}', "tokens_not_supported", "input"),
        (b'{"input": [[1, 2], [3]]}', "tokens_not_supported", "input"),
        (b'{"input": ["a", "b", "c", "d"]}', "too_many_texts", "input"),
        (b'{"input": ["' + b'a", "' * 100_000 + b'"]}', "too_many_texts", "input"),
        (b'{"input": "' + b"a " * 26 + b'"}', "text_too_long", "input"),
        (b'{"input": "' + b"a" * 1_000_000 + b'"}', "text_too_long", "input"),
        (b'{"input": "a ' + b"b" * 21 + b'"}', "text_too_long", "input"),
        (b'{"input": "a", "encoding_format": "int8"}', "invalid_value", "encoding_format"),
        (b'{"input": "a", "dimensions": "4"}', "invalid_value", "dimensions"),
        (b'{"input": "a", "dimensions": 1e999}', "invalid_value", "dimensions"),
        (b'{"input": "a", "model": 7}', "invalid_value", "model"),
        (b'{"input": "a", "stream": true}', "unknown_parameter", "stream"),
    ]
    for body, code, param in cases:
        with pytest.raises(ApiError) as caught:
            read_request(body, LIMITS)
        error = caught.value
        assert (error.status, error.code, error.param) == (400, code, param), body[:50]
        assert error.message.endswith(".")
        assert len(error.message) < 200


def test_a_hundred_thousand_wrong_items_cause_one_error() -> None:
    for item in ("1", "null", "[1]"):
        body = b'{"input": [' + ",".join([item] * 100_000).encode() + b"]}"
        with pytest.raises(ApiError) as caught:
            read_request(body, ServingLimits())
        context = caught.value.__context__
        assert isinstance(context, ValidationError)
        assert context.error_count() == 1


def test_limits_that_contradict_each_other() -> None:
    for wrong, refusal in (
        ({"texts": 0}, "--max-texts 0"),
        ({"batch": 0}, "--batch-size 0"),
        ({"cache": -1}, "--cache -1"),
        ({"texts": 9, "queue": 8}, "--max-queue 8"),
    ):
        with pytest.raises(InputError, match=f"{refusal} is too small"):
            ServingLimits(**wrong)  # type: ignore[arg-type]


def test_errors() -> None:
    for status, kind in ((400, "invalid_request_error"), (429, "rate_limit_error"), (500, "server_error")):
        response = ApiError(status, 'No "<b>".', "code", "input", retry_after=2).response()
        assert response.status_code == status
        error = {"message": 'No "<b>".', "type": kind, "param": "input", "code": "code"}
        assert json.loads(bytes(response.body)) == {"error": error}
        assert response.headers["content-type"] == "application/json"
        assert response.headers["retry-after"] == "2"
        assert "connection" not in response.headers
    assert ApiError(401, "No.", "invalid_api_key").response().headers["www-authenticate"] == "Bearer"
    assert ApiError(413, "No.", "body_too_long", close=True).response().headers["connection"] == "close"


def test_vectors_as_numbers_and_as_base64() -> None:
    response = EncodeResponse("text-encoder/3", VECTORS, 7).response("float")
    content = json.loads(bytes(response.body))
    assert content["object"] == "list"
    assert content["model"] == response.headers["x-cliptune-model"] == "text-encoder/3"
    assert content["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert [(row["object"], row["index"]) for row in content["data"]] == [("embedding", 0), ("embedding", 1)]
    vectors = np.array([row["embedding"] for row in content["data"]], np.float32)
    np.testing.assert_array_equal(vectors, np.stack(VECTORS))
    content = json.loads(bytes(EncodeResponse("m", VECTORS, 1).response("base64").body))
    decoded = [np.frombuffer(base64.b64decode(row["embedding"]), "<f4") for row in content["data"]]
    np.testing.assert_array_equal(np.stack(decoded), np.stack(VECTORS))
