"""Short HTTP requests for checks, with failures in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from components.core.errors import InputError
from components.doctor.check import SECONDS


def ask(
    url: str, fix: str, headers: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
) -> httpx.Response:
    """The answer to a GET, or to a POST of `body`, whatever its status but a refusal.

    Args:
        url: where to ask.
        fix: what to do when nobody answers.
        headers: sent along.
        body: JSON.

    Raises:
        InputError: nobody answers, or not to us.
    """
    try:
        with httpx.Client(timeout=SECONDS, headers=dict(headers or {}), follow_redirects=True) as client:
            answer = client.get(url) if body is None else client.post(url, json=body)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise InputError(f"{url} does not answer ({reason}): {fix}") from None
    if answer.status_code in (401, 403):
        raise InputError(f"{url} refuses us ({answer.status_code}): {CREDENTIALS}")
    return answer


CREDENTIALS = (
    "set PREFECT_API_AUTH_STRING, MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or the endpoint's key, to "
    "what the server wants"
)
