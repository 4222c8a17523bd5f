"""A client of one OpenAI-compatible server: settings, requests as JSON, retries, and whether a row or the server fails.

The openai client makes and repeats the attempts. Own code decides whose fault a failure is: a row that fails while
other rows, or a canary question, are answered is given up; a server that answers nothing for `give_up_s` stops the run.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, suppress
from itertools import islice
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt, field_validator

from components.captions.prompting.request import (
    COMPLETION,
    PICTURE,
    ModelAnswer,
    PromptPicture,
    Reply,
    Request,
    Sampling,
)
from components.core.settings import Block
from components.core.system.errors import InputError

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

NO_KEY = "none"
"""Sent where the environment has no key; local servers need none."""
PAUSE_S = 1.0
"""Between two rounds of attempts."""

_LEAVE_WITHIN_S = 10.0
_TRANSIENT = {408, 409, 425, 429}
"""Besides 5xx, the statuses after which the same request may succeed."""
_DENYING = {401, 403, 404}
"""Most often a wrong key, path or model; some gateways deny single prompts with them."""


class ServerOptions(Block):
    """Settings of the engine `server`."""

    # A URL with a password in it must not be quoted.
    model_config = ConfigDict(hide_input_in_errors=True)

    urls: tuple[str, ...] = Field(min_length=1)
    """Base URL, such as `http://127.0.0.1:8000/v1`."""
    model: str = Field(min_length=1)
    """Name of the model on the server."""
    revision: str | None = None
    """Version of the weights, where the server keeps one name for several; part of every key of the store."""
    concurrency: PositiveInt = 32
    """Requests in flight."""
    timeout_s: PositiveFloat = 120.0
    attempts: PositiveInt = 6
    """Attempts per row before it is given up, as long as the server answers other rows."""
    give_up_s: PositiveFloat = 300.0
    """The run stops when the server has answered nothing for so long."""
    api_key_env: str = Field("OPENAI_API_KEY", pattern=r"^[A-Z_][A-Z0-9_]*$")
    """Environment variable with the API key; unset where the server needs none."""
    prices: tuple[float, float] | None = None
    """Price of a million input and of a million output tokens; runs then log the cost of their answers."""
    seeds: bool = False
    """Send a seed with each request; servers on CPUs refuse it."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """More keys of each request's JSON body, such as `top_k`; part of every key of the store."""

    @property
    def url(self) -> str:
        """The base URL without a slash at its end."""
        return self.urls[0].rstrip("/")

    @field_validator("urls")
    @classmethod
    def _check_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        if len(urls) > 1:
            raise ValueError(
                "a model has one URL: put a proxy (nginx, LiteLLM) in front of several servers, or run vLLM with "
                "--data-parallel-size"
            )
        if not urls[0]:
            raise ValueError("is not set: write the URL of your OpenAI-compatible server, such as https://host/v1")
        try:
            parts = urlsplit(urls[0])
            usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
        except ValueError:
            usable = False
        if not usable:
            raise ValueError("the entry is not a URL such as http://127.0.0.1:8000/v1")
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise ValueError(
                "the entry holds more than an address: give the key in the environment variable that `api_key_env` "
                "names"
            )
        return urls


class ServerFault(Exception):
    """Why all attempts of a round failed, in a few words without secrets; another round may succeed.

    `overload`: the server works but has too many requests; `single`: the openai client made only one attempt.
    """

    def __init__(self, reason: str, *, overload: bool = False, single: bool = False) -> None:
        super().__init__(reason)
        self.overload, self.single = overload, single


class AccessDenied(ServerFault):
    """A status that may apply to every request; `advice` names the variable of the key, never the key."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(reason, single=True)
        self.advice = advice


class RowRefused(Exception):
    """Why the server will never answer this request, in a few words without secrets."""


class LlmClient:
    """Answers requests through one server."""

    def __init__(self, options: ServerOptions, key: str | None, check: Callable[[], None] = lambda: None) -> None:
        """Open the client; `check` is called after failures and raises where no other attempt can succeed."""
        self._options, self._check = options, check
        # Two rounds, so that a row whose first round met a dying server has a second one before the verdict.
        self._per_round = -(-options.attempts // 2)
        self._client = _open_client(options, key)
        self._last_answer = 0.0

    async def reply(self, request: Request) -> Reply:
        """Send a request until it is answered, refused or given up; once more, with more tokens, if its end is missing.

        Raises:
            InputError: the server has answered nothing for `give_up_s`, or does not accept the model or the key.
        """
        sent = request
        result = await self._settled(sent)
        if isinstance(result, ModelAnswer) and request.lacks_its_end(result):
            sent = request.longer
            result = await self._settled(sent)
        if isinstance(result, ModelAnswer):
            return Reply.of(request, result, sent.sampling.max_tokens)
        tokens = f" (sent again with {sent.sampling.max_tokens} tokens)" if sent is not request else ""
        return Reply(request, None, result + tokens)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _settled(self, request: Request) -> ModelAnswer | str:
        """The server's answer, or the reason why there is none."""
        started, failed_at, attempts = monotonic(), None, 0
        while True:
            try:
                return await self._round(request, self._per_round)
            except RowRefused as refusal:
                return str(refusal)
            except ServerFault as fault:
                attempts += 1 if fault.single else self._per_round
                denied = isinstance(fault, AccessDenied)
                is_used_up = denied or (attempts >= self._options.attempts and not fault.overload)
                is_late = monotonic() - started > self._options.give_up_s
                if is_late or (failed_at is not None and is_used_up):
                    if self._last_answer > (failed_at or started) or await self._answers_canary(request):
                        return str(fault) if denied else f"{fault} after {attempts} attempts"
                    if isinstance(fault, AccessDenied):
                        raise InputError(fault.advice) from None
                failed_at = failed_at or monotonic()
                self._check_hope(fault, started)
            await asyncio.sleep(PAUSE_S)

    async def _round(self, request: Request, attempts: int) -> ModelAnswer:
        """The answer of the first attempt that succeeds."""
        from openai import APIConnectionError, APIStatusError, APITimeoutError, OpenAIError

        path, body = body_of(request, self._options.model)
        body = {**self._options.extra, **body}
        if self._options.seeds:
            body["seed"] = seed_of(request)
        try:
            async with asyncio.timeout(self._options.give_up_s):
                content = await self._client.post(
                    path, cast_to=object, body=body, options={"max_retries": attempts - 1}
                )
            answer = _answer_in(content)
        except (APITimeoutError, TimeoutError):
            raise ServerFault("time-out") from None
        except APIConnectionError:
            raise ServerFault("connection failed") from None
        except APIStatusError as error:
            failure = self._failure(error)
            if isinstance(failure, RowRefused):
                self._last_answer = monotonic()
            raise failure from None
        except (OpenAIError, ValueError, RecursionError):
            raise ServerFault("response is not JSON", single=True) from None
        self._last_answer = monotonic()
        return answer

    def _failure(self, error: APIStatusError) -> ServerFault | RowRefused:
        code, options = error.status_code, self._options
        reason = f"HTTP {code}{_message_in(error.body, self._client.api_key)}"
        if code in _DENYING:
            return AccessDenied(
                reason,
                f"{options.url} answered HTTP {code} for model '{options.model}': correct `urls` (they end in /v1) or "
                f"`model` in params.yaml: synthesize.llms, or the key in the environment variable "
                f"{options.api_key_env}",
            )
        if code in _TRANSIENT or not 400 <= code < 500:
            return ServerFault(f"HTTP {code}", overload=code == 429)
        return RowRefused(reason)

    async def _answers_canary(self, request: Request) -> bool:
        """Whether the server works: it answers a question of the same kind as `request`."""
        role = COMPLETION if request.completion is not None else "user"
        canary = Request(request.task, ((role, "Say yes."),), request.model, Sampling(0.0, 1.0, 1), 0)
        with suppress(RowRefused):
            try:
                await self._round(canary, 1)
            except ServerFault:
                return False
        return True

    def _check_hope(self, fault: ServerFault, started: float) -> None:
        self._check()
        if monotonic() - max(started, self._last_answer) > self._options.give_up_s:
            raise InputError(
                f"the LLM server {self._options.url} has answered nothing for {self._options.give_up_s:g} seconds "
                f"({fault}): start it and run the command again, or correct `urls` in params.yaml: synthesize.llms"
            )


def body_of(request: Request, model: str) -> tuple[str, dict[str, Any]]:
    """Path and JSON body of a request to `model`."""
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
    """A seed below 2^31 that depends on the question only."""
    return int(request.key[:8], 16) >> 1


def _open_client(options: ServerOptions, key: str | None) -> AsyncOpenAI:
    """A client that keeps every connection open for the next request."""
    from httpx2 import Limits
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Timeout

    timeout = Timeout(options.timeout_s, connect=min(options.timeout_s, 10.0))
    # No proxy leads to a server on this machine.
    proxied = not options.url.startswith(("http://127.0.0.1:", "http://localhost:"))
    limits = Limits(max_connections=None, max_keepalive_connections=None)
    http = DefaultAsyncHttpxClient(limits=limits, trust_env=proxied)
    return AsyncOpenAI(base_url=options.url, api_key=key or NO_KEY, timeout=timeout, http_client=http)


def _content(text: str, pictures: Iterator[PromptPicture]) -> str | list[dict[str, Any]]:
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


def _message_in(body: object, key: str) -> str:
    """The first sentence of an error's message; the rest differs from row to row."""
    text = body.get("message") if isinstance(body, dict) else None
    if not isinstance(text, str):
        return ""
    if key != NO_KEY:
        text = text.replace(key, "***")
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return f": {re.split(r'(?<=[.!?]) ', line.strip(), maxsplit=1)[0][:120]}"


def _answer_in(content: object) -> ModelAnswer:
    """The text of the first choice, in a form that a store can keep."""
    if isinstance(content, str):
        # Sent with another media type than JSON.
        content = json.loads(content)
    try:
        choice = content["choices"][0]  # type: ignore[index]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        ended_by = choice.get("finish_reason")
    except (TypeError, KeyError, IndexError, AttributeError):
        raise ServerFault("response without an answer", single=True) from None
    if ended_by == "content_filter":
        raise RowRefused("the server's content filter stopped the answer")
    if text is not None and not isinstance(text, str):
        raise ServerFault("response without an answer", single=True)
    # PostgreSQL keeps no NUL, and no database half of a surrogate pair.
    kept = (text or "").replace("\0", "").encode("utf-8", "replace").decode("utf-8").strip()
    return ModelAnswer(kept, ended_by == "length", _tokens(content))


def _tokens(content: Any) -> tuple[int, int]:
    """Tokens of question and answer as the server counts them; zero where it does not."""
    usage = content.get("usage") if isinstance(content, dict) else None
    counts = [usage.get(f"{name}_tokens") if isinstance(usage, dict) else None for name in ("prompt", "completion")]
    asked, answered = (count if isinstance(count, int) and count > 0 else 0 for count in counts)
    return asked, answered


def replies_to(
    requests: Iterable[Request], connect: Callable[[], LlmClient], concurrency: int
) -> Iterator[list[Reply]]:
    """Yield replies in batches as they arrive; closing the iterator cancels requests in flight.

    When an error ends the work, requests in flight have some seconds to arrive before it is raised.
    """
    waiting = iter(requests)
    client: LlmClient | None = None
    pending: set[Future[Reply]] = set()
    error: BaseException | None = None
    with _event_loop() as loop:
        try:
            while error is None:
                try:
                    for request in islice(waiting, concurrency - len(pending)):
                        client = client or connect()
                        pending.add(asyncio.run_coroutine_threadsafe(client.reply(request), loop))
                except Exception as fault:
                    error = fault
                done, pending = wait(pending, None if error is None else _LEAVE_WITHIN_S, FIRST_COMPLETED)
                error = error or next(filter(None, (future.exception() for future in done)), None)
                if error is not None:
                    late, pending = wait(pending, _LEAVE_WITHIN_S)
                    done |= late
                if replies := [future.result() for future in done if future.exception() is None]:
                    yield replies
                elif error is None:
                    return
            raise error
        finally:
            asyncio.run_coroutine_threadsafe(_leave(client), loop).result()


async def _leave(client: LlmClient | None) -> None:
    """Cancel the requests in flight, then close the connections."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    if client is not None:
        await client.close()


@contextmanager
def _event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="LLM server", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
