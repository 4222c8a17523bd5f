"""Tells another service that the champion changed: a signed POST as Standard Webhooks describes it.

https://www.standardwebhooks.com. What is sent tells an index or a search service which version to load and why.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from datetime import UTC, datetime
from urllib.parse import urlsplit

import httpx
from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook

from components.core.errors import InputError
from components.core.retry import retrying
from components.core.settings import Promote
from components.registry.decision import Decision

_log = logging.getLogger(__name__)
SECRET = "CLIPTUNE_WEBHOOK_SECRET"
_PATIENCE_S = 20.0
_TIMEOUT_S = 5.0
_SENT = {"promoted", "rolled back"}
_FIELDS = ("model", "version", "previous_version", "encoder", "encoder_sha256", "against", "run_id", "time")
_SERVER_ERROR = 500


def check_webhook(settings: Promote) -> None:
    """Refuse settings that a message could not be signed with, before anything is promoted.

    Raises:
        InputError: there is an address and no secret, or the secret is not base64.
    """
    if settings.webhook is not None:
        _signer()


def announce(decision: Decision, settings: Promote) -> None:
    """Send what was decided to `promote.webhook`, if the champion changed.

    The promotion stands whether or not the other side hears of it; where it does not, that is a warning. A message that
    is sent again, after a lost answer or a kill, has the same `webhook-id`, by which the receiver knows it.
    """
    if settings.webhook is None or decision.outcome not in _SENT:
        return
    told = decision.model_dump(include=set(_FIELDS))
    event = {"type": f"encoder.{decision.outcome.replace(' ', '_')}", "timestamp": decision.time}
    body = json.dumps(event | {"data": told | {"headline": decision.headline}})
    message, now = f"msg_{hashlib.sha256(body.encode()).hexdigest()[:32]}", datetime.now(UTC)
    headers = {
        "content-type": "application/json",
        "webhook-id": message,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": _signer().sign(message, now, body),
    }
    try:
        retrying(_PATIENCE_S, _may_pass)(_post, settings.webhook, body, headers)
    except httpx.HTTPError as error:
        # Many services take whoever knows the whole address for its owner.
        host, status = urlsplit(settings.webhook).hostname, getattr(getattr(error, "response", None), "status_code", "")
        _log.warning("the webhook at %s got no message (%s): send it yourself", host, status or type(error).__name__)


def _post(url: str, body: str, headers: dict[str, str]) -> None:
    # Redirects are not followed: the secret's holder is the address that was written down.
    httpx.post(url, content=body, headers=headers, timeout=_TIMEOUT_S).raise_for_status()


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= _SERVER_ERROR
    return isinstance(error, httpx.TransportError)


def _signer() -> Webhook:
    secret = os.environ.get(SECRET, "")
    try:
        return Webhook(secret)
    except (ValueError, EmptyWebhookSecretError):
        raise InputError(
            f"promote.webhook is set, but {SECRET} holds no secret to sign with: set it to the receiver's, in base64"
        ) from None
