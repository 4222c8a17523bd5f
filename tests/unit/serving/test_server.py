"""How uvicorn is run."""

from __future__ import annotations

from starlette.applications import Starlette

from components.serving.limits import Limits
from components.serving.server import uvicorn_config


def test_addresses_of_proxies_are_believed_only_where_they_are_named() -> None:
    app = Starlette()
    assert not uvicorn_config(app, Limits(), {}).proxy_headers
    assert uvicorn_config(app, Limits(), {"FORWARDED_ALLOW_IPS": "10.0.0.1"}).proxy_headers


def test_an_answer_names_no_software_and_no_request_is_logged() -> None:
    config = uvicorn_config(Starlette(), Limits(stop_s=7), {})
    assert (config.server_header, config.access_log) == (False, False)
    assert config.timeout_graceful_shutdown == 7
