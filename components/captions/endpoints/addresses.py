"""The URLs that answer: which one a request goes to, which ones are left alone, when rows and runs are given up.

Own code around the openai client, which retries one address: which of several gets a request, and whether a row or a
server is at fault, nobody else decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from circuitbreaker import STATE_CLOSED, STATE_HALF_OPEN, CircuitBreaker  # type: ignore[import-untyped]
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential_jitter

from components.captions.endpoints.call import Denial, Fault, Refusal, call, message_of, seed_of
from components.captions.request import COMPLETION, Reply, Request, Said, Sampling
from components.core.errors import InputError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_log = logging.getLogger(__name__)

FAULTS_IN_A_ROW = 10
"""After so many, a URL's circuit opens."""
RECOVERY_S = 5.0
"""How long an open circuit stays so before its URL is tried again."""
BACKOFF_S, LONGEST_BACKOFF_S = 0.5, 20.0
_POLL_S = 0.05
_CANARY = "Say yes."


@dataclass(frozen=True)
class Limits:
    """What is asked for, with its limits and retries.

    Attributes:
        model: what the servers call the model.
        concurrency: requests in flight at each URL, at most.
        timeout_s: seconds that an attempt may take.
        attempts: how many a row gets.
        give_up_s: seconds without any answer after which the run stops.
        seeds: send a seed with each request.
        extra: more keys of the JSON body.
        key_env: the environment variable that holds the key, for messages.
    """

    model: str
    concurrency: int
    timeout_s: float
    attempts: int
    give_up_s: float
    seeds: bool
    extra: Mapping[str, Any]
    key_env: str


@dataclass
class Endpoint:
    """One URL, and how it does.

    Attributes:
        limit: requests in flight that it bears; falls when it says that it has too many, and grows with its answers.
        rests_until: a point of the monotonic clock before which it wants no request.
        probing: it is being asked whether it works again.
        fault: what went wrong last.
    """

    url: str
    client: AsyncOpenAI
    limit: float
    breaker: CircuitBreaker = field(
        default_factory=lambda: CircuitBreaker(FAULTS_IN_A_ROW, RECOVERY_S, lambda _, error: _blames_server(error))
    )
    in_flight: int = 0
    rests_until: float = 0.0
    probing: bool = False
    fault: str = "no attempt yet"

    @property
    def is_well(self) -> bool:
        """Whether it takes requests, be it busy or not."""
        return self.breaker.state == STATE_CLOSED and monotonic() >= self.rests_until

    @property
    def is_free(self) -> bool:
        """Whether it may be sent another request now."""
        return self.is_well and self.in_flight < int(self.limit)

    @property
    def has_recovered(self) -> bool:
        """Whether its circuit was open for long enough to try it again, and nobody does so yet."""
        return self.breaker.state == STATE_HALF_OPEN and not self.probing and monotonic() >= self.rests_until

    def learn(self, fault: Fault) -> None:
        """Take note of a failed attempt, which is no longer in flight."""
        self.fault = str(fault)
        self.rests_until = max(self.rests_until, monotonic() + fault.rest_s)
        if fault.overload:
            self.limit = max(1.0, min(self.limit, float(self.in_flight)))
        elif self.breaker.failure_count == FAULTS_IN_A_ROW:
            _log.warning(
                "%s: %d attempts in a row failed, the last with: %s; it is tried again every %g seconds",
                self.url, FAULTS_IN_A_ROW, fault, RECOVERY_S,
            )  # fmt: skip


def _blames_server(error: BaseException) -> bool:
    return isinstance(error, Fault) and not error.overload


@dataclass
class _Row:
    """A request on its way.

    Attributes:
        since: when it was first seen to, by the monotonic clock.
        at_fault: it has had all its attempts, and servers answer others.
    """

    request: Request
    since: float = field(default_factory=monotonic)
    at_fault: bool = False


class Endpoints:
    """Answers requests through whichever URL has the fewest in flight.

    A failed attempt says nothing about its row while no server works at all. So before a row is given up, or counts as
    denied, a canary question must be answered; and the run stops when nothing has been answered for `give_up_s`.
    """

    def __init__(
        self, clients: Mapping[str, AsyncOpenAI], limits: Limits, check: Callable[[], None] = lambda: None
    ) -> None:
        """Take clients of URLs; `check` is called after failed attempts and raises where no other can succeed."""
        self.all = [Endpoint(url, client, limits.concurrency) for url, client in clients.items()]
        self._check = check
        self._limits = limits
        self._last_answer = 0.0

    async def reply(self, request: Request) -> Reply:
        """Ask until there is an answer, a refusal or no hope; once more, with more tokens, where its end is missing.

        Raises:
            InputError: no URL has answered anything for `give_up_s`, or one does not know the model or the key.
        """
        asked = request
        found = await self._settled(asked)
        if isinstance(found, Said) and request.lacks_its_end(found):
            asked = request.longer
            found = await self._settled(asked)
        if isinstance(found, Said):
            return Reply.of(request, found, asked.sampling.max_tokens)
        tokens = f" (asked again with {asked.sampling.max_tokens} tokens)" if asked is not request else ""
        return Reply(request, None, found + tokens)

    async def _settled(self, request: Request) -> Said | str:
        """What a server said in the end, or why nothing, in a few words."""
        row = _Row(request)

        async def make_sure(state: RetryCallState) -> None:
            await self._make_sure(row, last=state.attempt_number >= self._limits.attempts)

        # Not `components.core.retry`: it sleeps in its thread, and here one thread awaits all requests.
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(Fault),
            after=make_sure,
            stop=lambda _: row.at_fault,
            wait=wait_exponential_jitter(BACKOFF_S, LONGEST_BACKOFF_S, jitter=BACKOFF_S),
            reraise=True,
        )
        try:
            return await retrying(self._attempt, row)
        except Refusal as refusal:
            return str(refusal)
        except Fault as fault:
            return f"{fault} after {retrying.statistics['attempt_number']} attempts"

    async def close(self) -> None:
        """Close the connections."""
        for endpoint in self.all:
            await endpoint.client.close()

    async def _attempt(self, row: _Row) -> Said:
        endpoint = await self._free(row)
        try:
            return await self._ask(endpoint, row.request)
        except Denial as denial:
            if await self._probe(endpoint, row.request):
                raise
            raise Fault(str(denial)) from None

    async def _free(self, row: _Row) -> Endpoint:
        """The free URL with the fewest requests in flight; on the way, one that has had its rest is tried again."""
        while True:
            for endpoint in self.all:
                if endpoint.has_recovered:
                    await self._probe(endpoint, row.request)
            free = [endpoint for endpoint in self.all if endpoint.is_free]
            if free:
                return min(free, key=lambda endpoint: endpoint.in_flight)
            if not any(endpoint.is_well for endpoint in self.all):
                self._check_hope(row)
            await asyncio.sleep(_POLL_S)

    async def _ask(self, endpoint: Endpoint, request: Request) -> Said:
        path, body = message_of(request, self._limits.model)
        body = {**self._limits.extra, **body}
        if self._limits.seeds:
            body["seed"] = seed_of(request)
        endpoint.in_flight += 1
        fault: Fault | None = None
        try:
            with endpoint.breaker:
                answer = await call(endpoint.client, path, body, self._limits.timeout_s, self._limits.key_env)
        except Fault as error:
            fault = error
            raise
        except Refusal:
            self._last_answer = monotonic()
            raise
        finally:
            endpoint.in_flight -= 1
            if fault is not None:
                endpoint.learn(fault)
        self._last_answer = monotonic()
        endpoint.limit = min(self._limits.concurrency, endpoint.limit + 1 / endpoint.limit)
        return answer

    async def _probe(self, endpoint: Endpoint, request: Request) -> bool:
        """Whether a canary question of the kind of `request` is answered: no row pays for finding out.

        Raises:
            InputError: it is denied.
        """
        role = COMPLETION if request.completion is not None else "user"
        canary = Request(request.task, ((role, _CANARY),), request.model, Sampling(0.0, 1.0, 1), 0)
        endpoint.probing = True
        try:
            await self._ask(endpoint, canary)
        except Fault:
            return False
        except Denial as denial:
            raise InputError(denial.advice) from None
        except Refusal:
            return True
        finally:
            endpoint.probing = False
        return True

    async def _make_sure(self, row: _Row, *, last: bool) -> None:
        """Before a row or the run is given up, make sure that it is not the other that fails."""
        quiet = monotonic() - max(row.since, self._last_answer)
        free = [endpoint for endpoint in self.all if endpoint.is_free]
        if free and (last or quiet > self._limits.give_up_s / 2):
            alive = await self._probe(min(free, key=lambda endpoint: endpoint.in_flight), row.request)
            row.at_fault = alive and last
        self._check_hope(row)

    def _check_hope(self, row: _Row) -> None:
        self._check()
        if monotonic() - max(row.since, self._last_answer) > self._limits.give_up_s:
            told = ", ".join(f"{endpoint.url} ({endpoint.fault})" for endpoint in self.all)
            raise InputError(
                f"no LLM server has answered for {self._limits.give_up_s:g} seconds: {told}; start it and run the "
                "command again, or correct `urls` in params.yaml: synthesize.models"
            )
