"""Engine `server`: any OpenAI-compatible server, with many requests at once."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from components.captions.generating.client import LlmClient, ServerOptions
from components.captions.generating.in_flight import replies_to
from components.captions.generating.wire import Parameters
from components.captions.prompting.request import Reply, Request
from components.core.system.errors import InputError
from components.core.tables.files import content_hash


@dataclass(frozen=True)
class ServerEngine:
    """Sends requests to a server; connects at the first request."""

    options: ServerOptions

    @cached_property
    def _parameters(self) -> Parameters:
        """Those of all requests of a run."""
        return Parameters(self.options.extra, self.options.seeds)

    @cached_property
    def model(self) -> str:
        """Name and revision, and a hash of `extra`, which may change every answer."""
        revision = f"@{self.options.revision}" if self.options.revision else ""
        extra = json.dumps(self.options.extra, sort_keys=True)
        return self.options.model + revision + (f"+{content_hash(extra)[:8]}" if self.options.extra else "")

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        """Yield replies as they arrive, with at most `concurrency` requests in flight."""
        yield from replies_to(requests, self._connect, self.options.concurrency)

    def _connect(self) -> LlmClient:
        key = os.environ.get(self.options.api_key_env, "").strip()
        if not re.fullmatch(r"[\x21-\x7e]*", key):
            # An HTTP client would quote the whole header in its error.
            raise InputError(
                f"the environment variable {self.options.api_key_env} holds characters that no key has: set it again"
            )
        return LlmClient(self.options, key or None, parameters=self._parameters)


ENGINE = (ServerOptions, ServerEngine)
