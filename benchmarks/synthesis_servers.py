"""Rows per second of the engine `server` and of a plain sequential client, on the same OpenAI-compatible server."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice

from components.captions.generating.client import ServerOptions
from components.captions.generating.engines.server import ServerEngine
from components.captions.prompting.request import Request, Sampling
from components.captions.prompting.tasks import find_task
from components.core.system.progress import track

TASK, MAX_TOKENS = "paraphrase_1", 24
_WARM_UP = 2


@dataclass(frozen=True)
class Rates:
    """Rows per second of both sides, and the number of rows without an answer, which do not count in the rates."""

    sequential: float
    server: float
    failed: int

    @property
    def speedup(self) -> float:
        """How many times as fast the engine is."""
        return self.server / self.sequential


def requests(count: int, model: str, first: int = 0) -> list[Request]:
    """Questions of ParaCLIP's first prompt about captions that are all different."""
    task, sampling = find_task(TASK), Sampling(1.0, 0.1, MAX_TOKENS)
    captions = (f"stock photo: large dog left of {first + number} small cats" for number in range(count))
    requested = (task.messages({"caption": caption}) for caption in captions)
    chats = (tuple((message["role"], message["content"]) for message in messages) for messages in requested)
    return [Request(TASK, chat, model, sampling, 0) for chat in chats]


def measure_servers(url: str, model: str, rows: int, sequential_rows: int, concurrency: int) -> Rates:
    """Ask both ways, after a few rows that do not count; no prompt is sent twice, so that no cache helps either."""
    requested = iter(requests(_WARM_UP * (1 + concurrency) + rows + sequential_rows, model))
    plain = partial(_plain_client, url)
    engine = partial(_engine, url, concurrency)
    engine(list(islice(requested, _WARM_UP * concurrency)))
    plain(list(islice(requested, _WARM_UP)))
    sequential, _ = _timed(plain, list(islice(requested, sequential_rows)))
    server, failed = _timed(engine, list(islice(requested, rows)))
    return Rates(sequential, server, failed)


def _timed(ask: Callable[[list[Request]], int], requested: list[Request]) -> tuple[float, int]:
    """Rows per second, and how many got no answer."""
    start = time.perf_counter()
    answered = ask(requested)
    return answered / (time.perf_counter() - start), len(requested) - answered


def _plain_client(url: str, requested: list[Request]) -> int:
    """The client of a short script: the next question after the last answer."""
    from openai import OpenAI

    answered = 0
    with OpenAI(base_url=url, api_key=os.environ.get("OPENAI_API_KEY") or "none") as client:
        for request in track(requested, "sequential client", len(requested), "row"):
            sampling = request.sampling
            response = client.chat.completions.create(
                model=request.model,
                messages=request.messages,  # type: ignore[arg-type]
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=sampling.max_tokens,
            )
            answered += response.choices[0].message.content is not None
    return answered


def _engine(url: str, concurrency: int, requested: list[Request]) -> int:
    engine = ServerEngine(ServerOptions(urls=(url,), model=requested[0].model, concurrency=concurrency))
    replies = (reply for batch in engine.answer(requested) for reply in batch)
    return sum(reply.answer is not None for reply in track(replies, f"{concurrency} at once", len(requested), "row"))
