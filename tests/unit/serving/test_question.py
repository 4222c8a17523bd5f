"""What clients may ask, and what each wrong request is told."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from components.serving.errors import Refusal
from components.serving.limits import Limits
from components.serving.question import read_question

LIMITS = Limits(text=50, word=20, texts=3)


def test_a_text_or_a_list_of_texts() -> None:
    assert read_question(b'{"input": "a dog"}', LIMITS).texts == ["a dog"]
    whole = {"input": ["a", "b"], "model": "m", "encoding_format": "base64", "dimensions": 4, "user": "u"}
    question = read_question(json.dumps(whole).encode(), LIMITS)
    assert (question.texts, question.model, question.encoding_format) == (["a", "b"], "m", "base64")
    assert question.dimensions == 4


@pytest.mark.parametrize("text", ["<b o='alert(1)'> &lt;</b>", "\x00\x1b[31m\x07\r\n", "😀 caf\u00e9", " "])
def test_odd_texts_stay_as_they_are(text: str) -> None:
    assert read_question(json.dumps({"input": text}).encode(), LIMITS).texts == [text]


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
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
        (b'{"input": "' + b"a " * 26 + b'"}', "text_too_long", "input"),
        (b'{"input": "a ' + b"b" * 21 + b'"}', "text_too_long", "input"),
        (b'{"input": "a", "encoding_format": "int8"}', "invalid_value", "encoding_format"),
        (b'{"input": "a", "dimensions": "4"}', "invalid_value", "dimensions"),
        (b'{"input": "a", "dimensions": 1e999}', "invalid_value", "dimensions"),
        (b'{"input": "a", "model": 7}', "invalid_value", "model"),
        (b'{"input": "a", "stream": true}', "unknown_parameter", "stream"),
    ],
)
def test_wrong_requests_are_told_one_clear_error(body: bytes, code: str, param: str | None) -> None:
    with pytest.raises(Refusal) as caught:
        read_question(body, LIMITS)
    refusal = caught.value
    assert (refusal.status, refusal.code, refusal.param) == (400, code, param)
    assert refusal.message.endswith(".")
    assert len(refusal.message) < 200


def test_what_is_just_within_the_limits_passes() -> None:
    texts = ["a " * 25, "b" * 20, "c"]
    assert read_question(json.dumps({"input": texts}).encode(), LIMITS).texts == texts


@pytest.mark.parametrize("item", ["1", "null", "[1]"])
def test_of_a_hundred_thousand_wrong_items_one_error_is_made(item: str) -> None:
    body = b'{"input": [' + ",".join([item] * 100_000).encode() + b"]}"
    with pytest.raises(Refusal) as caught:
        read_question(body, Limits())
    made = caught.value.__context__
    assert isinstance(made, ValidationError)
    assert made.error_count() == 1


def test_a_hundred_thousand_texts() -> None:
    with pytest.raises(Refusal, match="100000 texts: give 1 to "):
        read_question(json.dumps({"input": ["a"] * 100_000}).encode(), Limits())


def test_a_million_characters() -> None:
    with pytest.raises(Refusal, match="1000000 characters: give at most 1000"):
        read_question(b'{"input": "' + b"a" * 1_000_000 + b'"}', Limits())
