"""Any OpenAI-compatible server, or several: many requests at once, each reply handed over as it arrives."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt, field_validator

from components.captions.endpoints.addresses import Endpoints, Limits
from components.captions.endpoints.call import open_client
from components.captions.endpoints.flow import flow
from components.captions.request import Reply, Request
from components.core.errors import InputError
from components.core.files import content_hash
from components.core.settings import Block


class Options(Block):
    """Settings of the server engine."""

    # A URL with a password in it must not be quoted back.
    model_config = ConfigDict(hide_input_in_errors=True)

    urls: tuple[str, ...] = Field(min_length=1)
    """Base URLs, such as `http://127.0.0.1:8000/v1`; each request goes to the one with the fewest in flight."""
    model: str = Field(min_length=1)
    """What the servers call the model."""
    revision: str | None = None
    """Tells versions of the weights apart that servers give one name; part of every key of the store."""
    concurrency: PositiveInt = 32
    """Requests in flight at each URL."""
    timeout_s: PositiveFloat = 120.0
    attempts: PositiveInt = 6
    """After so many a row is given up, as long as the servers answer other rows."""
    give_up_s: PositiveFloat = 300.0
    """The run stops when no URL has answered anything for so long."""
    api_key_env: str = Field("OPENAI_API_KEY", pattern=r"^[A-Z_][A-Z0-9_]*$")
    """Name of the environment variable that holds the key; unset where servers want none."""
    seeds: bool = False
    """Send each request a seed of its own; servers on CPUs refuse it."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """More keys of each request's JSON body, such as `top_k`; part of every key of the store."""

    @field_validator("urls")
    @classmethod
    def _check_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for number, url in enumerate(urls, 1):
            try:
                parts = urlsplit(url)
                usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
            except ValueError:
                usable = False
            if not usable:
                raise ValueError(f"entry {number} is no URL such as http://127.0.0.1:8000/v1")
            if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
                raise ValueError(
                    f"entry {number} holds more than an address: give the key in the environment variable that "
                    "`api_key_env` names"
                )
        return tuple(dict.fromkeys(url.rstrip("/") for url in urls))


@dataclass(frozen=True)
class ServerEngine:
    """Asks servers of one model; nothing is connected before the first request."""

    options: Options

    @cached_property
    def model(self) -> str:
        """Name and revision, and a hash of `extra`, which may change every answer."""
        revision = f"@{self.options.revision}" if self.options.revision else ""
        extra = json.dumps(self.options.extra, sort_keys=True)
        return self.options.model + revision + (f"+{content_hash(extra)[:8]}" if self.options.extra else "")

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        """Yield whatever has arrived, as soon as it has.

        At most `concurrency` per URL are in flight, and twice as many taken and not yet yielded.

        Raises:
            InputError: no server answers, or one does not know the model or the key.
        """
        with flow(self._connect, self.options.concurrency * len(self.options.urls), requests) as batches:
            yield from batches

    def _connect(self) -> Endpoints:
        key = self._key()
        clients = {url: open_client(url, key, self.options.timeout_s) for url in self.options.urls}
        return Endpoints(clients, self._limits())

    def _limits(self) -> Limits:
        names = ("model", "concurrency", "timeout_s", "attempts", "give_up_s", "seeds", "extra")
        return Limits(**{name: getattr(self.options, name) for name in names}, key_env=self.options.api_key_env)

    def _key(self) -> str | None:
        key = os.environ.get(self.options.api_key_env, "").strip()
        if not re.fullmatch(r"[\x21-\x7e]*", key):
            # An HTTP client would quote the whole header in its complaint.
            raise InputError(
                f"the environment variable {self.options.api_key_env} holds characters that no key has: set it anew"
            )
        return key or None


def make(options: Options) -> ServerEngine:
    """The engine that params.yaml describes."""
    return ServerEngine(options)
