"""JSON to and from OpenAI-compatible servers, the parameters that a server refuses, and HTTP clients.

The clients, for addresses in a user's settings, follow no redirect and read a limited number of bytes.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from components.captions.prompting.request import COMPLETION, PICTURE, ModelAnswer, PromptPicture, Request, ShownPicture

MOST_BYTES = 8 << 20
"""Maximum size of a response's body after decompression."""


class OversizedError(Exception):
    """The body of a response has more than `MOST_BYTES`."""


class _Body:
    """Joins the pieces of a body; raises `OversizedError` at the first piece beyond the limit."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._left = MOST_BYTES

    def add(self, piece: bytes) -> None:
        self._left -= len(piece)
        if self._left < 0:
            raise OversizedError(f"the answer has more than {MOST_BYTES >> 20} MB")
        self._pieces.append(piece)

    def response(self, response: httpx2.Response) -> httpx2.Response:
        """`response` with this body, which is not compressed."""
        encoded = {"content-encoding", "content-length", "transfer-encoding"}
        headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in encoded]
        content = b"".join(self._pieces)
        return httpx2.Response(response.status_code, headers=headers, content=content, request=response.request)


class BoundedClient(httpx2.Client):
    """A client whose responses are read whole; `url` decides whether a proxy may be used."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(trust_env=not is_local(url), follow_redirects=False, **options)

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """The response with its whole body; raises `OversizedError`, and as `httpx2.Client.send`."""
        response, body = super().send(request, **{**options, "stream": True, "follow_redirects": False}), _Body()
        try:
            for piece in response.iter_bytes():
                body.add(piece)
        finally:
            response.close()
        return body.response(response)


class BoundedAsyncClient(httpx2.AsyncClient):
    """`BoundedClient` for coroutines."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(trust_env=not is_local(url), follow_redirects=False, **options)

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """The response with its whole body; raises `OversizedError`, and as `httpx2.AsyncClient.send`."""
        options |= {"stream": True, "follow_redirects": False}
        response, body = await super().send(request, **options), _Body()
        try:
            async for piece in response.aiter_bytes():
                body.add(piece)
        finally:
            await response.aclose()
        return body.response(response)


def is_local(url: str) -> bool:
    """Whether an address is on this machine, where no proxy leads."""
    return url.startswith(("http://127.0.0.1:", "http://localhost:"))


def redirect_of(response: httpx2.Response) -> str | None:
    """The address, without a query or a password, that a response redirects to; None if it does not redirect."""
    if not response.is_redirect:
        return None
    try:
        target = response.request.url.join(response.headers.get("location", ""))
        return str(target.copy_with(username="", password="", query=None, fragment=None))[:200]
    except (httpx2.InvalidURL, ValueError):
        return "another address"


_RENAMED = {"max_tokens": "max_completion_tokens"}
"""Parameter -> its name on servers that refuse the first name; without a limit an answer could cost anything."""
_OPTIONAL = ("seed", "top_p", "temperature")
"""Parameters that are left out where a server refuses them; of several that it names together, the first one."""
_REFUSED = (
    r"(?:un(?:supported|recogni[sz]ed|known|expected)|not (?:support\w*|allowed|permitted))[^.{{}}]{{0,60}}\b{0}\b"
    r"|\b{0}\b[^.{{}}]{{0,80}}(?:un(?:supported|recogni[sz]ed|known|expected)|not (?:support|allowed|permitted|be used)"
    r"|cannot both)"
)
"""A refusal that names the parameter; a refused value, such as one that is too large, has other words."""
_NO_CREDIT = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "account_deactivated"}
_PAYMENT_REQUIRED = 402
_LONGEST_SENTENCE = 200
FILTERED = "the server's content filter stopped the answer"


class MalformedError(Exception):
    """An answer without a text, in a few words."""


class FilteredError(Exception):
    """The server's filter stopped the answer."""


@dataclass
class Parameters:
    """The keys of a request's body next to its messages: those of its task, without those that the server refused.

    Attributes:
        extra: keys that replace those of the task; null removes one.
        seeds: whether a seed is sent.
        refused: parameters that the server has named as unsupported, in the order of its refusals.
    """

    extra: Mapping[str, Any] = field(default_factory=dict)
    seeds: bool = False
    refused: list[str] = field(default_factory=list)

    def sent(self, request: Request) -> dict[str, Any]:
        """The parameters of a request."""
        sampling = request.sampling
        own = {"temperature": sampling.temperature, "top_p": sampling.top_p, "max_tokens": sampling.max_tokens}
        if self.seeds:
            own["seed"] = seed_of(request)
        named = {_RENAMED.get(name, name) if name in self.refused else name: own[name] for name in own}
        kept = {name: value for name, value in named.items() if name not in self.refused}
        return {name: value for name, value in {**kept, **self.extra}.items() if value is not None}

    def learn(self, body: Mapping[str, Any], refusal: object) -> bool:
        """Whether a refusal of `body` names a parameter that later requests do without, or under another name."""
        text = refusal if isinstance(refusal, str) else json.dumps(refusal)
        for name in (*_RENAMED, *_OPTIONAL):
            if name in body and name not in self.extra and re.search(_REFUSED.format(name), text, re.IGNORECASE):
                if name not in self.refused:
                    self.refused.append(name)
                return True
        return False

    def recorded(self, request: Request) -> str | None:
        """The sampling that was sent, as JSON; None if it is the request's own."""
        if not self.refused:
            return None
        names = ("temperature", "top_p", *(name for pair in _RENAMED.items() for name in pair))
        return json.dumps({name: value for name, value in sorted(self.sent(request).items()) if name in names})

    def __str__(self) -> str:
        renamed = [f"{_RENAMED[name]} instead of {name}" for name in self.refused if name in _RENAMED]
        dropped = [f"without {name}" for name in self.refused if name not in _RENAMED]
        return ", ".join([*(f"with {text}" for text in renamed), *dropped])


def body_of(request: Request, model: str, parameters: Parameters) -> tuple[str, dict[str, Any]]:
    """Path and JSON body of a request to `model`."""
    body = {"model": model, **parameters.sent(request)}
    if request.completion is not None:
        return "/completions", body | {"prompt": request.completion}
    pictures = iter(request.pictures)
    messages = [{"role": role, "content": _content(text, pictures)} for role, text in request.chat]
    return "/chat/completions", body | {"messages": messages}


def seed_of(request: Request) -> int:
    """A seed below 2^31 that depends on the question only."""
    return int(request.key[:8], 16) >> 1


def _content(text: str, pictures: Iterator[ShownPicture]) -> str | list[dict[str, Any]]:
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


def sentence_in(body: object, secret: str) -> str:
    """The first sentence of an error's message, after a colon, or nothing; the rest differs from row to row."""
    text = body
    while not isinstance(text, str):
        # OpenAI, FastAPI with a text or a list, Ollama's own API.
        found = text[:1] if isinstance(text, list) else _values(text, "message", "detail", "msg", "error")
        if not found:
            return ""
        text = found[0]
    if secret:
        text = text.replace(secret, "***")
    line = "".join(letter if letter.isprintable() else " " for letter in text).strip()
    return f": {re.split(r'(?<=[.!?]) ', line, maxsplit=1)[0][:_LONGEST_SENTENCE]}" if line[:1] not in ("", "<") else ""


def _values(body: object, *names: str) -> list[object]:
    return [body[name] for name in names if body.get(name)] if isinstance(body, dict) else []


def is_unpaid(code: int, body: object) -> bool:
    """Whether an account has no credit, so that no other request will be answered."""
    return code == _PAYMENT_REQUIRED or not _NO_CREDIT.isdisjoint(map(str, _values(body, "code", "type")))


def answer_in(content: object) -> ModelAnswer:
    """The text of the first choice, in a form that a store can keep.

    Raises:
        MalformedError: it is not an answer.
        FilteredError: the server's content filter stopped it.
    """
    if isinstance(content, str):
        # Sent with another media type than JSON.
        try:
            content = json.loads(content)
        except (ValueError, RecursionError):
            raise MalformedError("response is not JSON") from None
    try:
        choice = content["choices"][0]  # type: ignore[index]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        ended_by = choice.get("finish_reason")
    except (TypeError, KeyError, IndexError, AttributeError):
        raise MalformedError("response without an answer") from None
    if ended_by == "content_filter":
        raise FilteredError(FILTERED)
    if text is not None and not isinstance(text, str):
        raise MalformedError("response without an answer")
    # PostgreSQL keeps no NUL, and no database half of a surrogate pair.
    kept = (text or "").replace("\0", "").encode("utf-8", "replace").decode("utf-8").strip()
    return ModelAnswer(kept, ended_by == "length", _tokens(content))


def _tokens(content: Any) -> tuple[int, int]:
    """Tokens of question and answer as the server counts them; zero where it does not."""
    usage = content.get("usage") if isinstance(content, dict) else None
    counts = [usage.get(f"{name}_tokens") if isinstance(usage, dict) else None for name in ("prompt", "completion")]
    asked, answered = (count if isinstance(count, int) and count > 0 else 0 for count in counts)
    return asked, answered


def canary(request: Request) -> Request:
    """A plain question of the same kind as `request`, with a grey picture if that one has pictures."""
    from PIL import Image

    role, shown, pictures = COMPLETION if request.completion is not None else "user", "", list[PromptPicture]()
    if request.pictures:
        encoded = io.BytesIO()
        Image.new("RGB", (64, 64), "grey").save(encoded, "JPEG")
        shown, pictures = PICTURE, [PromptPicture(encoded.getvalue(), "image/jpeg")]
    return Request(request.task, ((role, f"{shown}Say yes."),), request.model, request.sampling, 0, tuple(pictures))


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that a server wants before the next request; zero where it does not say."""
    given = headers.get("retry-after", "")
    with suppress(ValueError):
        return float(given)
    with suppress(ValueError):
        return (parsedate_to_datetime(given) - datetime.now(UTC)).total_seconds()
    return 0.0
