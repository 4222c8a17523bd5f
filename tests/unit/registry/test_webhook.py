"""Messages about a new champion, over real HTTP."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError
from standardwebhooks.webhooks import Webhook

from components.core.settings import Promote, Settings
from components.core.system.errors import InputError
from components.registry import webhook
from components.registry.champion import rollback
from components.registry.model import CHAMPION, find_alias
from components.registry.promotion import promote
from components.tracking import make_client

KEY = "whsec_c2VjcmV0IHNlY3JldCBzZWNyZXQ="


class Receiver(BaseHTTPRequestHandler):
    """Answers with the statuses in `answers`, then 204; keeps the messages."""

    answers: ClassVar[list[int]] = []
    messages: ClassVar[list[tuple[dict[str, str], bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.messages.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(self.answers.pop(0) if self.answers else 204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def webhook_settings(project: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """The project's settings with a webhook at a server of this process."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    Receiver.messages.clear()
    monkeypatch.setenv(webhook.SECRET, KEY)
    changed = project.settings.promote.model_copy(update={"webhook": f"http://127.0.0.1:{server.server_port}/hook"})
    yield project.settings.model_copy(update={"promote": changed})
    server.shutdown()
    thread.join()
    server.server_close()


def test_messages_about_a_new_champion_are_signed(project: Any, webhook_settings: Settings) -> None:
    project.add("paraclip", 2, 0.5)
    settings, received = webhook_settings, Receiver.messages
    decision = promote(settings)
    ((headers, body),) = received
    Webhook(KEY).verify(body, headers)
    message = json.loads(body)
    assert message["type"] == "encoder.promoted"
    assert (message["data"]["model"], message["data"]["version"]) == ("text-encoder", "1")
    assert message["data"]["encoder_sha256"] == decision.encoder_sha256
    # The same weights again, and a refusal, send no message.
    promote(settings)
    project.add("paraclip", 3, 0.3)
    promote(settings)
    assert len(received) == 1
    project.add("paraclip", 4, 0.7)
    promote(settings)
    rollback(settings)
    assert [json.loads(body)["type"] for _, body in received[1:]] == ["encoder.promoted", "encoder.rolled_back"]


def test_server_errors_are_retried_and_a_refusal_is_a_warning(
    project: Any, webhook_settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, received = webhook_settings, Receiver.messages
    project.add("paraclip", 2, 0.5)
    with monkeypatch.context() as patch:
        patch.delenv(webhook.SECRET)
        with pytest.raises(InputError, match=webhook.SECRET):
            promote(settings)
    assert find_alias(make_client(), "text-encoder", CHAMPION) is None
    Receiver.answers[:] = [500, 503]
    promote(settings)
    assert len(received) == 3
    assert len({headers["webhook-id"] for headers, _ in received}) == 1
    Receiver.answers[:] = [401]
    project.add("paraclip", 3, 0.6)
    with caplog.at_level(logging.WARNING):
        assert promote(settings).outcome == "promoted"
    assert len(received) == 4
    assert "the webhook at 127.0.0.1 did not accept the message (401)" in caplog.text
    assert "/hook" not in caplog.text


def test_addresses_are_encrypted_or_of_this_machine() -> None:
    for url in ("http://example.org/hook", "https://a:b@example.org", "ftp://127.0.0.1", "http://127.0.0.1.a.org/"):
        with pytest.raises(ValidationError):
            Promote(model="m", metric="p", guards={}, webhook=url)
    assert Promote(model="m", metric="p", guards={}, webhook="https://example.org/hook").webhook
