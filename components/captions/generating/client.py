"""A client of one OpenAI-compatible server: settings, retries, and whether a row or the server fails.

A row that fails while other rows, or a canary question, are answered is given up. A server that answers nothing for
`give_up_s`, or refuses the first rows and a canary alike, stops the run.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt, field_validator
from tqdm import tqdm

from components.captions.generating.wire import (
    BoundedAsyncClient,
    FilteredError,
    MalformedError,
    OversizedError,
    Parameters,
    answer_in,
    body_of,
    canary,
    is_unpaid,
    redirect_of,
    retry_after,
    sentence_in,
)
from components.captions.prompting.request import ModelAnswer, Reply, Request
from components.core.settings import Block
from components.core.system.errors import InputError

if TYPE_CHECKING:
    from openai import APIConnectionError, APIStatusError, AsyncOpenAI

NO_KEY = "none"
"""Sent where the environment has no key; local servers need none."""
PAUSE_S = 0.5
"""Before the second attempt; doubled before each further one, at most `_DOUBLINGS` times."""

_DOUBLINGS = 5
_OVERLOAD = 429
_TRANSIENT = {408, 409, 425}
"""Besides 429 and 5xx, the statuses after which the same request may succeed."""
_GIVEN_UP = re.compile(r" after \d+ attempts")
_NUMBERS = re.compile(r"[0-9a-f-]*\d[0-9a-f-]*")
"""Numbers and identifiers, which differ between refusals alike."""


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
    batch_prices: tuple[float, float] | None = None
    """The same in a batch, for `cliptune plan --cost`; half of `prices` when not given."""
    seeds: bool = False
    """Send a seed with each request; servers on CPUs refuse it."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """More keys of each request's JSON body, such as `top_k`; they replace those of the task, and null removes one.
    Part of every key of the store."""
    _setting: str = "synthesize.llms of params.yaml"

    def model_post_init(self, context: str | None) -> None:
        """Keep the name of the setting that messages give, which is the context of the validation."""
        if context:
            self._setting = context

    @property
    def setting(self) -> str:
        """The key or option that has these settings, for messages."""
        return self._setting

    @property
    def url(self) -> str:
        """The base URL without a slash at its end."""
        return self.urls[0].rstrip("/")

    @field_validator("extra")
    @classmethod
    def _check_extra(cls, extra: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted(extra.keys() & {"messages", "model", "n", "prompt", "stream"}):
            raise ValueError(f"{', '.join(taken)} cannot be changed: remove it")
        return extra

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


@dataclass(eq=False)
class ServerFault(Exception):
    """Why an attempt failed, in a few words without secrets; another one may succeed.

    Attributes:
        wait_s: seconds that the server wants before the next attempt.
        overload: the server works but has too many requests.
        advice: ends the run at the second failure of a row if the server has never answered.
    """

    reason: str
    wait_s: float = 0.0
    overload: bool = False
    advice: str = ""

    def __str__(self) -> str:
        return self.reason


class RowRefused(Exception):
    """Why the server will never answer this request, in a few words without secrets."""


def may_pass(failure: str) -> bool:
    """Whether a reply's failure was the server's, so that the same question may be answered later."""
    return _GIVEN_UP.search(failure) is not None


class LlmClient:
    """Answers requests through one server."""

    def __init__(
        self,
        options: ServerOptions,
        key: str | None,
        check: Callable[[], None] = lambda: None,
        parameters: Parameters | None = None,
    ) -> None:
        """Open the client; `check` is called after failures and raises where no other attempt can succeed."""
        self._options, self._check, self._secret = options, check, key or ""
        self._parameters = parameters or Parameters(options.extra, options.seeds)
        self._announced = str(self._parameters)
        self._client = _open_client(options, key)
        self._answered_at = 0.0

    async def reply(self, request: Request) -> Reply:
        """Send a request until it is answered, refused or given up; again with more tokens if its end is missing."""
        sent, started = request, monotonic()
        result = await self._settled(sent, started)
        if isinstance(result, ModelAnswer) and request.lacks_its_end(result):
            sent = request.longer
            result = await self._settled(sent, started)
        if isinstance(result, ModelAnswer):
            reply = Reply.of(request, result, sent.sampling.max_tokens)
            return replace(reply, sampling=self._parameters.recorded(request))
        tokens = f" (sent again with {sent.sampling.max_tokens} tokens)" if sent is not request else ""
        return Reply(request, None, result + tokens)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _settled(self, request: Request, started: float) -> ModelAnswer | str:
        """The server's answer, or the reason why there is none."""
        failed_at, attempts, give_up_s = 0.0, 0, self._options.give_up_s
        while True:
            try:
                return await self._attempt(request)
            except RowRefused as refusal:
                await self._is_row(request, refusal, started)
                return str(refusal)
            except ServerFault as fault:
                self._check()
                # A server that ends has answers on their way: only answers after an earlier failure show life.
                now = monotonic()
                attempts, since, failed_at = attempts + 1, failed_at or now, now
                hopeless = bool(fault.advice) and not self._answered_at
                is_used_up = attempts >= (2 if hopeless else self._options.attempts) and not fault.overload
                if is_used_up or now - started > give_up_s:
                    if await self._is_row(request, fault, since):
                        return f"{fault} after {attempts} attempts"
                    if hopeless:
                        raise InputError(fault.advice) from None
                    if monotonic() - max(started, self._answered_at) > give_up_s:
                        raise InputError(
                            f"the LLM server {self._options.url} has answered nothing for {give_up_s:g} seconds "
                            f"({fault}): start it and run the command again, or {self._correct_url}"
                        ) from None
                pause = max(PAUSE_S * 2 ** min(attempts - 1, _DOUBLINGS), fault.wait_s)
                await asyncio.sleep(min(pause, give_up_s))

    async def _is_row(self, request: Request, failure: RowRefused | ServerFault, since: float) -> bool:
        """Whether only the row fails: the server has answered another one `since` then, or responds to a canary.

        Raises `InputError` if the server refuses the canary with the same words.
        """
        if self._answered_at > since:
            return True
        try:
            await self._attempt(canary(request))
        except RowRefused as refusal:
            if _NUMBERS.sub("", str(refusal)) == _NUMBERS.sub("", str(failure)):
                options = self._options
                raise InputError(
                    f"{options.url} refuses every question to model '{options.model}' ({refusal}): correct the URL, "
                    f"the model or `extra` in {options.setting}, the key in the environment variable "
                    f"{options.api_key_env}, or the task"
                ) from None
        except ServerFault:
            return False
        return True

    async def _attempt(self, request: Request) -> ModelAnswer:
        """The answer to one attempt; parameters that the server refuses are left out at once."""
        from openai import APIConnectionError, APIStatusError, OpenAIError

        try:
            # Pictures are made here, each in a thread, while other requests are in flight.
            make = partial(body_of, request, self._options.model, self._parameters)
            path, body = await asyncio.to_thread(make) if request.pictures else make()
        except ValueError as error:
            raise RowRefused(f"unreadable: {error}") from None
        try:
            async with asyncio.timeout(self._options.give_up_s):
                answer = answer_in(await self._client.post(path, cast_to=object, body=body))
        except TimeoutError:
            raise ServerFault("time-out") from None
        except APIConnectionError as error:
            raise self._unconnected(error) from None
        except APIStatusError as error:
            failure = self._failure(error)
            if isinstance(failure, RowRefused) and self._parameters.learn(body, error.body):
                return await self._attempt(request)
            raise failure from None
        except (FilteredError, OversizedError) as refusal:
            raise RowRefused(str(refusal)) from None
        except (MalformedError, OpenAIError, ValueError, RecursionError) as error:
            reason = str(error) if isinstance(error, MalformedError) else "response is not JSON"
            wrong = f"{self._options.url} does not answer as an OpenAI-compatible server ({reason})"
            raise ServerFault(reason, advice=f"{wrong}: {self._correct_url}") from None
        self._answered_at = monotonic()
        self._announce()
        return answer

    def _announce(self) -> None:
        """Print once, above the progress bar, how the parameters of the requests differ from those of params.yaml."""
        if (said := str(self._parameters)) != self._announced:
            self._announced = said
            tqdm.write(f"{self._options.model}: requests are sent {said}, because the server refuses these parameters")

    def _failure(self, error: APIStatusError) -> ServerFault | RowRefused | InputError:
        code, url = error.status_code, self._options.url
        reason = f"HTTP {code}{sentence_in(error.body, self._secret)}"
        if (target := redirect_of(error.response)) is not None:
            return InputError(
                f"{url} redirects to {target}, and questions are sent only to the address in "
                f"{self._options.setting}: write the new one there if you trust it"
            )
        if is_unpaid(code, error.body):
            return InputError(f"{url}: the account has no credit ({reason}): add some and run the command again")
        if code == _OVERLOAD:
            return ServerFault(reason, retry_after(error.response.headers), overload=True)
        if code in _TRANSIENT or not 400 <= code < 500:
            return ServerFault(f"HTTP {code}", retry_after(error.response.headers))
        return RowRefused(reason)

    def _unconnected(self, error: APIConnectionError) -> ServerFault:
        """The fault of a connection that broke, or, with an advice, was never made."""
        from httpx2 import ConnectError, ConnectTimeout
        from openai import APITimeoutError

        fault = ServerFault("time-out" if isinstance(error, APITimeoutError) else "connection failed")
        if isinstance(cause := error.__cause__, (ConnectError, ConnectTimeout)):
            none = f"{self._options.url} accepts no connection ({str(cause) or 'time-out'})"
            fault.advice = f"{none}: start the server, or {self._correct_url}"
        return fault

    @property
    def _correct_url(self) -> str:
        return f"correct the URL in {self._options.setting} (it ends in /v1 for most servers)"


def _open_client(options: ServerOptions, key: str | None) -> AsyncOpenAI:
    """A client that keeps every connection open for the next request."""
    from httpx2 import Limits
    from openai import AsyncOpenAI, Timeout

    timeout = Timeout(options.timeout_s, connect=min(options.timeout_s, 10.0))
    limits = Limits(max_connections=None, max_keepalive_connections=None)
    http = BoundedAsyncClient(options.url, limits=limits, timeout=timeout)
    return AsyncOpenAI(base_url=options.url, api_key=key or NO_KEY, timeout=timeout, max_retries=0, http_client=http)
