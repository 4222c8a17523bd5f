"""Short HTTP requests for checks, with failures in one line.

They are set up by the variables of Prefect's and MLflow's own clients, which take seconds to import; only flows/
imports Prefect.
"""

from __future__ import annotations

import base64
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
        raise InputError(f"{url} refuses us ({answer.status_code}): {_CREDENTIALS}")
    return answer


_CREDENTIALS = (
    "set PREFECT_API_AUTH_STRING, MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or the endpoint's key, to "
    "what the server wants"
)


def prefect_url(environment: Mapping[str, str]) -> str:
    """The address of Prefect's API; empty where none is set."""
    return environment.get("PREFECT_API_URL", "").rstrip("/")


def ask_prefect(environment: Mapping[str, str], path: str, body: Mapping[str, Any] | None = None) -> Any:
    """What Prefect's API answers, of JSON, to a GET, or to a POST of `body`.

    Raises:
        InputError: it does not answer, refuses us, or knows no such path.
    """
    url = prefect_url(environment) + path
    login, token = environment.get("PREFECT_API_AUTH_STRING", ""), environment.get("PREFECT_API_KEY", "")
    fix = "start it with `make stack`, or correct PREFECT_API_URL"
    answer = ask(url, fix, _authorization(login, token), body)
    if answer.status_code != 200 or "json" not in answer.headers.get("content-type", "json"):
        # Without /api Prefect's pages answer, whatever the path.
        raise InputError(f"{url} answers {answer.status_code}: PREFECT_API_URL must end with /api")
    return answer.json()


def ask_mlflow(environment: Mapping[str, str], uri: str, path: str) -> httpx.Response:
    """What MLflow's server at `uri` answers to a GET.

    Raises:
        InputError: it does not answer, or refuses us.
    """
    user, password = (environment.get(f"MLFLOW_TRACKING_{name}", "") for name in ("USERNAME", "PASSWORD"))
    login = f"{user}:{password}" if user and password else ""
    fix = "start it with `make stack`, or correct MLFLOW_TRACKING_URI"
    headers = _authorization(login, environment.get("MLFLOW_TRACKING_TOKEN", ""))
    return ask(f"{uri.rstrip('/')}/api/2.0/mlflow/{path}", fix, headers)


def _authorization(login: str, token: str) -> dict[str, str]:
    if login:
        return {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}
    return {"Authorization": f"Bearer {token}"} if token else {}
