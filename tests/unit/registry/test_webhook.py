"""Messages about a new champion, over real HTTP."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic import ValidationError
from standardwebhooks.webhooks import Webhook

from components.core.settings import Promote
from components.core.system.errors import InputError
from components.registry import webhook
from components.registry.champion import rollback
from components.registry.model import CHAMPION, find_alias
from components.registry.promotion import promote
from components.tracking import make_client

KEY = "whsec_c2VjcmV0IHNlY3JldCBzZWNyZXQ="


@dataclass
class Receiver:
    """Answers with the statuses in `answers`, then 204; keeps the messages."""

    answers: list[int] = field(default_factory=list)
    heard: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            made.heard.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(made.answers.pop(0) if made.answers else 204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_port}/hook"
    monkeypatch.setenv(webhook.SECRET, KEY)
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


def _with_webhook(project: Any, url: str) -> Any:
    changed = project.settings.promote.model_copy(update={"webhook": url})
    return project.settings.model_copy(update={"promote": changed})


def test_messages_about_a_new_champion_are_signed(project: Any, receiver: Receiver) -> None:
    project.add("paraclip", 2, 0.5)
    settings = _with_webhook(project, receiver.url)
    decision = promote(settings)
    ((headers, body),) = receiver.heard
    Webhook(KEY).verify(body, headers)
    message = json.loads(body)
    assert message["type"] == "encoder.promoted"
    assert (message["data"]["model"], message["data"]["version"]) == ("text-encoder", "1")
    assert message["data"]["encoder_sha256"] == decision.encoder_sha256
    # The same weights again, and a refusal, send no message.
    promote(settings)
    project.add("paraclip", 3, 0.3)
    promote(settings)
    assert len(receiver.heard) == 1
    project.add("paraclip", 4, 0.7)
    promote(settings)
    rollback(settings)
    assert [json.loads(body)["type"] for _, body in receiver.heard[1:]] == ["encoder.promoted", "encoder.rolled_back"]


def test_server_errors_are_retried_and_a_refusal_is_a_warning(
    project: Any, receiver: Receiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = _with_webhook(project, receiver.url)
    project.add("paraclip", 2, 0.5)
    with monkeypatch.context() as patch:
        patch.delenv(webhook.SECRET)
        with pytest.raises(InputError, match=webhook.SECRET):
            promote(settings)
    assert find_alias(make_client(), "text-encoder", CHAMPION) is None
    receiver.answers = [500, 503]
    promote(settings)
    assert len(receiver.heard) == 3
    assert len({headers["webhook-id"] for headers, _ in receiver.heard}) == 1
    receiver.answers = [401]
    project.add("paraclip", 3, 0.6)
    with caplog.at_level(logging.WARNING):
        assert promote(settings).outcome == "promoted"
    assert len(receiver.heard) == 4
    assert "the webhook at 127.0.0.1 did not accept the message (401)" in caplog.text
    assert receiver.url not in caplog.text


def test_addresses_are_encrypted_or_of_this_machine() -> None:
    refused = ("http://example.org/hook", "https://user:word@example.org", "ftp://127.0.0.1", "http://127.0.0.1.a.org/")
    for url in refused:
        with pytest.raises(ValidationError):
            Promote(model="m", metric="p", guards={}, webhook=url)
    assert Promote(model="m", metric="p", guards={}, webhook="https://example.org/hook").webhook
