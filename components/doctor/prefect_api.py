"""HTTP requests to Prefect's API, set up by Prefect's own environment variables; only flows/ imports Prefect."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import httpx

from components.core.errors import InputError
from components.doctor.web import ask

URL = "PREFECT_API_URL"
_MEND = "start it with `make stack` or `make stack-full`, or correct PREFECT_API_URL"


def url_of(environment: Mapping[str, str]) -> str:
    """The API's address; empty where none is set."""
    return environment.get(URL, "").rstrip("/")


def call(environment: Mapping[str, str], path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
    """The API's answer to a GET, or to a POST of `body`.

    Raises:
        InputError: it does not answer, refuses us, or knows no such path.
    """
    url = url_of(environment) + path
    answer = ask(url, _MEND, _headers(environment), body)
    if answer.status_code != 200:
        raise InputError(f"{url} answers {answer.status_code}: PREFECT_API_URL must end with /api")
    return answer


def _headers(environment: Mapping[str, str]) -> dict[str, str]:
    if pair := environment.get("PREFECT_API_AUTH_STRING"):
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    if key := environment.get("PREFECT_API_KEY"):
        return {"Authorization": f"Bearer {key}"}
    return {}
