"""Refusals have OpenAI's shape."""

from __future__ import annotations

import json

import pytest

from components.serving.errors import Refusal


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "invalid_request_error"), (429, "rate_limit_error"), (500, "server_error")]
)
def test_shape(status: int, kind: str) -> None:
    response = Refusal(status, 'No "<b>".', "code", "input", retry_after=2).response()
    assert response.status_code == status
    error = {"message": 'No "<b>".', "type": kind, "param": "input", "code": "code"}
    assert json.loads(bytes(response.body)) == {"error": error}
    assert response.headers["content-type"] == "application/json"
    assert response.headers["retry-after"] == "2"
    assert "connection" not in response.headers


def test_who_is_not_known_is_told_how() -> None:
    assert Refusal(401, "No.", "invalid_api_key").response().headers["www-authenticate"] == "Bearer"
    assert Refusal(413, "No.", "body_too_long", close=True).response().headers["connection"] == "close"
