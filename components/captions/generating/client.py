"""A client of one OpenAI-compatible server: settings, retries, and whether a row or the server fails.

The openai client makes and repeats the attempts. Own code decides whose fault a failure is: a row that fails while
other rows, or a canary question, are answered is given up; a server that answers nothing for `give_up_s` stops the run.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt, field_validator
from tqdm import tqdm

from components.captions.generating.wire import (
    FilteredError,
    MalformedError,
    Parameters,
    answer_in,
    body_of,
    canary,
    is_unpaid,
    retry_after,
    sentence_in,
)
from components.captions.prompting.request import ModelAnswer, Reply, Request, Sampling
from components.core.settings import Block
from components.core.system.bounded_http import BoundedAsyncClient, OversizedError, redirect_of
from components.core.system.errors import InputError

if TYPE_CHECKING:
    from openai import APIConnectionError, APIStatusError, AsyncOpenAI

NO_KEY = "none"
"""Sent where the environment has no key; local servers need none."""
PAUSE_S = 1.0
"""Between two rounds of attempts."""

_OVERLOAD = 429
_TRANSIENT = {408, 409, 425}
"""Besides 429 and 5xx, the statuses after which the same request may succeed."""
_DOUBLINGS = 5
"""A server with too many requests has at most 2^5 pauses before the next one, unless it wants more."""
_ALIKE = 3
"""Number of first requests, refused alike, after which a plain question is tried."""
_GIVEN_UP = re.compile(r" after \d+ attempts")
_DIGITS = re.compile(r"\d+")
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
    """More keys of each request's JSON body, such as `top_k`; they replace those of the task, and null removes one.
    Part of every key of the store."""
    _setting: str = "params.yaml: synthesize.llms"

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


class ServerFault(Exception):
    """Why all attempts of a round failed, in a few words without secrets; another round may succeed.

    Attributes:
        overload: the server works but has too many requests; it wants `wait_s` seconds before the next one.
        single: the openai client made only one attempt.
        advice: ends the run if the server has never answered otherwise; never the key.
        denied: a status that may apply to every request, so that `advice` also ends a run with answers.
    """

    def __init__(
        self,
        reason: str,
        *,
        overload: bool = False,
        wait_s: float = 0.0,
        single: bool = False,
        advice: str = "",
        denied: bool = False,
    ) -> None:
        super().__init__(reason)
        self.overload, self.wait_s, self.single, self.advice, self.denied = overload, wait_s, single, advice, denied


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
        # Two rounds, so that a row whose first round met a dying server has a second one before the verdict.
        self._per_round = -(-options.attempts // 2)
        self._client = _open_client(options, key)
        self._last_answer = 0.0
        self._answered = False
        self._refusals: Counter[str] = Counter()

    async def reply(self, request: Request) -> Reply:
        """Send a request until it is answered, refused or given up; again with more tokens if its end is missing."""
        sent = request
        result = await self._settled(sent)
        if isinstance(result, ModelAnswer) and request.lacks_its_end(result):
            sent = request.longer
            result = await self._settled(sent)
        if isinstance(result, ModelAnswer):
            reply = Reply.of(request, result, sent.sampling.max_tokens)
            return replace(reply, sampling=self._parameters.recorded(request))
        tokens = f" (sent again with {sent.sampling.max_tokens} tokens)" if sent is not request else ""
        return Reply(request, None, result + tokens)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _settled(self, request: Request) -> ModelAnswer | str:
        """The server's answer, or the reason why there is none."""
        started, failed_at, attempts, rounds = monotonic(), None, 0, 0
        while True:
            # Nothing is repeated within a round before the server has shown that it works.
            tries = self._per_round if self._last_answer else 1
            try:
                return await self._round(request, tries)
            except RowRefused as refusal:
                await self._check_alike(request, str(refusal))
                return str(refusal)
            except ServerFault as fault:
                attempts += 1 if fault.single else tries
                hopeless = bool(fault.advice) and (fault.denied or not self._last_answer)
                is_used_up = hopeless or (attempts >= self._options.attempts and not fault.overload)
                is_late = monotonic() - started > self._options.give_up_s
                if is_late or (failed_at is not None and is_used_up):
                    if self._last_answer > (failed_at or started) or await self._is_alive(request):
                        return str(fault) if fault.denied else f"{fault} after {attempts} attempts"
                    if hopeless:
                        raise InputError(fault.advice) from None
                failed_at = failed_at or monotonic()
                self._check_hope(fault, started)
                pause = PAUSE_S * (2 ** min(rounds, _DOUBLINGS) if fault.overload else 1)
                rounds += 1
                await asyncio.sleep(min(max(pause, fault.wait_s), self._options.give_up_s))

    async def _round(self, request: Request, attempts: int) -> ModelAnswer:
        """The answer of the first attempt that succeeds; parameters that the server refuses are left out at once."""
        from openai import APIConnectionError, APIStatusError, APITimeoutError, OpenAIError

        try:
            # Pictures are made here, each in a thread, while other requests are in flight.
            make = partial(body_of, request, self._options.model, self._parameters)
            path, body = await asyncio.to_thread(make) if request.pictures else make()
        except ValueError as error:
            raise RowRefused(f"unreadable: {error}") from None
        try:
            async with asyncio.timeout(self._options.give_up_s):
                content = await self._client.post(
                    path, cast_to=object, body=body, options={"max_retries": attempts - 1}
                )
            answer = answer_in(content)
        except TimeoutError:
            raise ServerFault("time-out") from None
        except APIConnectionError as error:
            reason = "time-out" if isinstance(error, APITimeoutError) else "connection failed"
            raise ServerFault(reason, advice=self._unreachable(error)) from None
        except APIStatusError as error:
            failure = self._failure(error)
            if isinstance(failure, RowRefused):
                self._last_answer = monotonic()
                if self._parameters.learn(body, error.body):
                    return await self._round(request, attempts)
            raise failure from None
        except (FilteredError, OversizedError) as refusal:
            self._last_answer = monotonic()
            raise RowRefused(str(refusal)) from None
        except (MalformedError, OpenAIError, ValueError, RecursionError) as error:
            reason = str(error) if isinstance(error, MalformedError) else "response is not JSON"
            wrong = f"{self._options.url} does not answer as an OpenAI-compatible server ({reason})"
            raise ServerFault(reason, single=True, advice=f"{wrong}: {self._correct_url}") from None
        self._last_answer, self._answered = monotonic(), True
        self._announce()
        return answer

    def _announce(self) -> None:
        """Print once, above the progress bar, how the parameters of the requests differ from those of params.yaml."""
        if (said := str(self._parameters)) != self._announced:
            self._announced = said
            tqdm.write(f"{self._options.model}: requests are sent {said}, because the server refuses these parameters")

    def _failure(self, error: APIStatusError) -> ServerFault | RowRefused | InputError:
        code, options = error.status_code, self._options
        sentence = sentence_in(error.body, self._secret)
        reason = f"HTTP {code}{sentence}"
        if (target := redirect_of(error.response)) is not None:
            return InputError(
                f"{options.url} redirects to {target}, and questions are sent only to the address in "
                f"{options.setting}: write the new one there if you trust it"
            )
        if is_unpaid(code, error.body):
            return InputError(
                f"{options.url}: the account has no credit ({reason}): add some and run the command again"
            )
        if code in _DENYING:
            advice = (
                f"{options.url} answered HTTP {code} for model '{options.model}'{sentence}: {self._correct_url}, or "
                f"correct the model's name, or the key in the environment variable {options.api_key_env}"
            )
            return ServerFault(reason, single=True, advice=advice, denied=True)
        if code == _OVERLOAD:
            return ServerFault(reason, overload=True, wait_s=retry_after(error.response.headers))
        if code in _TRANSIENT or not 400 <= code < 500:
            return ServerFault(f"HTTP {code}")
        return RowRefused(reason)

    async def _is_alive(self, request: Request) -> bool:
        """Whether the server works: it answers a question of the same kind as `request`."""
        with suppress(RowRefused):
            try:
                await self._round(canary(request, Sampling(0.0, 1.0, 1)), 1)
            except ServerFault:
                return False
        return True

    async def _check_alike(self, request: Request, reason: str) -> None:
        """Raise `InputError` if the server refuses the first requests and a plain question of their kind alike."""
        if self._answered:
            return
        self._refusals[_DIGITS.sub("", reason)] += 1
        if len(self._refusals) > 1 or self._refusals.total() % _ALIKE:
            return
        with suppress(ServerFault):
            try:
                await self._round(canary(request, request.sampling), 1)
            except RowRefused as refusal:
                if _DIGITS.sub("", str(refusal)) in self._refusals:
                    raise InputError(
                        f"{self._options.url} refuses every question to model '{self._options.model}' ({refusal}): "
                        f"correct the task or the model's settings, such as `extra` in {self._options.setting}"
                    ) from None

    def _check_hope(self, fault: ServerFault, started: float) -> None:
        self._check()
        if monotonic() - max(started, self._last_answer) > self._options.give_up_s:
            raise InputError(
                f"the LLM server {self._options.url} has answered nothing for {self._options.give_up_s:g} seconds "
                f"({fault}): start it and run the command again, or {self._correct_url}"
            )

    def _unreachable(self, error: APIConnectionError) -> str:
        """The advice where no connection was made; empty where one broke."""
        from httpx2 import ConnectError, ConnectTimeout

        if not isinstance(cause := error.__cause__, (ConnectError, ConnectTimeout)):
            return ""
        reason = str(cause) or "time-out"
        return f"{self._options.url} accepts no connection ({reason}): start the server, or {self._correct_url}"

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
    return AsyncOpenAI(base_url=options.url, api_key=key or NO_KEY, timeout=timeout, http_client=http)
