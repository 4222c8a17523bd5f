"""One question to an OpenAI-compatible server: the request as JSON, and what its response means."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from components.captions.request import PICTURE, Picture, Request, Said

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

NO_KEY = "none"
"""Sent where the environment has no key; local servers want none."""

_LONGEST_REASON = 120
_CONNECT_WITHIN = 10.0
_PASSING = {408, 409, 425, 429}
"""Besides 5xx, the statuses after which the same request may succeed."""
_DENYING = {401, 403, 404}
"""Most often a wrong key, path or model; some gateways deny single prompts in this way."""


class Fault(Exception):
    """Why an attempt failed, in a few words without secrets; another attempt may succeed.

    Attributes:
        overload: the server is well but has too much to do.
        rest_s: how long it asks to be left alone, in seconds.
    """

    def __init__(self, reason: str, *, overload: bool = False, rest_s: float = 0.0) -> None:
        super().__init__(reason)
        self.overload = overload
        self.rest_s = rest_s


class Refusal(Exception):
    """Why a server will never answer this request, in a few words without secrets."""


class Denial(Refusal):
    """A refusal that may mean every request.

    Attributes:
        advice: the URL, the model and the environment variable of the key, never the key.
    """

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(reason)
        self.advice = advice


def message_of(request: Request, model: str) -> tuple[str, dict[str, Any]]:
    """Path and JSON body that ask a request of the model that the server calls `model`."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": model,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
    }
    if request.completion is not None:
        return "/completions", body | {"prompt": request.completion}
    pictures = iter(request.pictures)
    messages = [{"role": role, "content": _content(text, pictures)} for role, text in request.chat]
    return "/chat/completions", body | {"messages": messages}


def seed_of(request: Request) -> int:
    """A seed below 2^31 that is the same wherever the same question is asked."""
    return int(request.key[:8], 16) >> 1


def _content(text: str, pictures: Iterator[Picture]) -> str | list[dict[str, Any]]:
    """Plain text, or parts where pictures stand between texts."""
    if PICTURE not in text:
        return text
    parts: list[dict[str, Any]] = []
    for place, piece in enumerate(text.split(PICTURE)):
        if place:
            picture = next(pictures)
            url = f"data:{picture.media_type};base64,{base64.b64encode(picture.data).decode('ascii')}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
        if piece.strip():
            parts.append({"type": "text", "text": piece})
    return parts


async def call(client: AsyncOpenAI, path: str, body: Mapping[str, Any], timeout_s: float, key_env: str) -> Said:
    """The answer; its text may be empty.

    Raises:
        Fault: this attempt failed.
        Refusal: every attempt would.
        Denial: every attempt would, and perhaps every request.
    """
    from openai import APIConnectionError, APIStatusError, APITimeoutError, OpenAIError

    try:
        async with asyncio.timeout(timeout_s):
            content = await client.post(path, cast_to=object, body=body)
    except (APITimeoutError, TimeoutError):
        raise Fault("time-out") from None
    except APIConnectionError:
        raise Fault("connection failed") from None
    except APIStatusError as error:
        raise _failed(error, client, str(body["model"]), key_env) from None
    except (OpenAIError, ValueError, RecursionError):
        raise Fault("response is no JSON") from None
    return _said_in(content)


def _failed(error: APIStatusError, client: AsyncOpenAI, model: str, key_env: str) -> Exception:
    code = error.status_code
    reason = f"HTTP {code}{_said(error.body, client.api_key)}"
    if code in _DENYING:
        url = str(client.base_url).rstrip("/")
        return Denial(
            reason,
            f"{url} answered HTTP {code} when asked for model '{model}': correct `urls` (they end in /v1) or `model` "
            f"in params.yaml: synthesize.models, or the key in the environment variable {key_env}",
        )
    if code in _PASSING or not 400 <= code < 500:
        return Fault(f"HTTP {code}", overload=code == 429, rest_s=_rest(error.response.headers.get("retry-after")))
    return Refusal(reason)


def _rest(retry_after: str | None) -> float:
    """Seconds that a Retry-After header asks for: a number, or a date."""
    if retry_after is None:
        return 0.0
    if re.fullmatch(r"\d{1,9}(\.\d*)?", retry_after.strip()):
        return float(retry_after)
    try:
        until = parsedate_to_datetime(retry_after)
    except ValueError:
        return 0.0
    return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _said(body: object, key: str) -> str:
    """The first sentence of an error's message; what follows differs from row to row."""
    text = body.get("message") if isinstance(body, dict) else None
    if not isinstance(text, str):
        return ""
    if key != NO_KEY:
        text = text.replace(key, "***")
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return f": {re.split(r'(?<=[.!?]) ', line.strip(), maxsplit=1)[0][:_LONGEST_REASON]}"


def _said_in(content: object) -> Said:
    """What the first choice says, as a store can keep it."""
    try:
        choice = content["choices"][0]  # type: ignore[index]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        ended_by = choice.get("finish_reason")
    except (TypeError, KeyError, IndexError, AttributeError):
        raise Fault("response without an answer") from None
    if ended_by == "content_filter":
        raise Refusal("the server's content filter stopped the answer")
    if text is not None and not isinstance(text, str):
        raise Fault("response without an answer")
    # PostgreSQL keeps no NUL, and no database half of a surrogate pair.
    kept = (text or "").replace("\0", "").encode("utf-8", "replace").decode("utf-8").strip()
    return Said(kept, cut=ended_by == "length")


def open_client(url: str, key: str | None, timeout_s: float) -> AsyncOpenAI:
    """A client of one URL that makes one attempt only and keeps every connection open for the next request."""
    from httpx2 import Limits
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Timeout

    timeout = Timeout(timeout_s, connect=min(timeout_s, _CONNECT_WITHIN))
    # No proxy leads to a server on this machine.
    proxied = not url.startswith(("http://127.0.0.1:", "http://localhost:"))
    limits = Limits(max_connections=None, max_keepalive_connections=None)
    http = DefaultAsyncHttpxClient(limits=limits, trust_env=proxied)
    return AsyncOpenAI(base_url=url, api_key=key or NO_KEY, max_retries=0, timeout=timeout, http_client=http)
