"""Sends each change of champion to another service, as a signed POST (https://www.standardwebhooks.com)."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from datetime import UTC, datetime
from urllib.parse import urlsplit

import httpx
from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook

from components.core.settings import Promote
from components.core.system.errors import InputError
from components.core.system.retry import retrying
from components.registry.decision import Decision

_log = logging.getLogger(__name__)
SECRET = "CLIPTUNE_WEBHOOK_SECRET"
_PATIENCE_S = 20.0
_TIMEOUT_S = 5.0
_SENT = {"promoted", "rolled back"}
_FIELDS = ("model", "version", "previous_version", "encoder", "encoder_sha256", "against", "run_id", "time")
_SERVER_ERROR = 500


def check_webhook(settings: Promote) -> None:
    """Raise InputError if messages cannot be signed: an address without a secret, or a secret that is not base64."""
    if settings.webhook is not None:
        _signer()


def announce(decision: Decision, settings: Promote) -> None:
    """Send the decision to `promote.webhook` if the champion changed; a failure is logged as a warning.

    A message that is sent again after a lost response or a kill has the same `webhook-id`.
    """
    if settings.webhook is None or decision.outcome not in _SENT:
        return
    data = decision.model_dump(include=set(_FIELDS)) | {"headline": decision.headline}
    event = {"type": f"encoder.{decision.outcome.replace(' ', '_')}", "timestamp": decision.time}
    body = json.dumps(event | {"data": data})
    message, now = f"msg_{hashlib.sha256(body.encode()).hexdigest()[:32]}", datetime.now(UTC)
    headers = {
        "content-type": "application/json",
        "webhook-id": message,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": _signer().sign(message, now, body),
    }
    try:
        retrying(_PATIENCE_S, _is_transient)(_post, settings.webhook, body, headers)
    except httpx.HTTPError as error:
        # Only the host is logged: the whole address of many services is a secret.
        host, status = urlsplit(settings.webhook).hostname, getattr(getattr(error, "response", None), "status_code", "")
        _log.warning(
            "the webhook at %s did not accept the message (%s): send it yourself", host, status or type(error).__name__
        )


def _post(url: str, body: str, headers: dict[str, str]) -> None:
    # Redirects are not followed: only the configured address holds the secret.
    httpx.post(url, content=body, headers=headers, timeout=_TIMEOUT_S).raise_for_status()


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= _SERVER_ERROR
    return isinstance(error, httpx.TransportError)


def _signer() -> Webhook:
    secret = os.environ.get(SECRET, "")
    try:
        return Webhook(secret)
    except (ValueError, EmptyWebhookSecretError):
        raise InputError(
            f"promote.webhook is set, but {SECRET} has no signing secret: set it to the receiver's secret in base64"
        ) from None
