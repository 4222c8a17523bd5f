"""Many clients of a server of text embeddings, for a process of their own.

Each has one connection of plain asyncio streams, because the work of a full HTTP client would be counted against the
server, which shares the machine. Answers are read when all is over.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_PATIENCE = 60.0
"""Seconds after which a request counts as lost."""
_BACK_OFF = 0.02
"""Seconds that a client waits after a refusal."""


@dataclass(frozen=True)
class Job:
    """The task of all clients: each sends one text after the other, from its own place in the list, until time is up.

    `key` is the name of the list of texts in the body: `input` or `inputs`.
    """

    port: int
    path: str
    key: str
    texts: list[str]
    clients: int
    seconds: float


class Answer(NamedTuple):
    """A server's answer to a text; `ms` are from the request to the last byte."""

    text: str
    status: int
    ms: float
    body: bytes

    @property
    def vector(self) -> npt.NDArray[np.float32]:
        """The only vector of an answer of either server."""
        found = json.loads(self.body)
        return np.array(found["data"][0]["embedding"] if "data" in found else found["predictions"][0], np.float32)


@dataclass
class Outcome:
    """The result of a job; `seconds` are from the first request to the last answer, `lost` requests without one."""

    seconds: float
    lost: int
    answers: list[Answer]

    def __post_init__(self) -> None:
        self.right = [one for one in self.answers if one.status == 200]

    @property
    def rate(self) -> float:
        """Right answers per second."""
        return len(self.right) / self.seconds

    @property
    def median_ms(self) -> float:
        """Of the right answers."""
        return float(np.median([one.ms for one in self.right]))

    def largest_difference(self, known: Mapping[str, npt.NDArray[np.float32]]) -> float:
        """The largest difference of any number of any vector from its right value."""
        return max(float(np.abs(one.vector - known[one.text]).max()) for one in self.right)


def run_job(job: Job) -> Outcome:
    """Do a job in this process."""
    return asyncio.run(_run(job))


async def _run(job: Job) -> Outcome:
    answers, begun = list[Answer](), time.perf_counter()
    clients = (_client(number, job, begun + job.seconds, answers) for number in range(job.clients))
    lost = sum(await asyncio.gather(*clients))
    return Outcome(time.perf_counter() - begun, lost, answers)


async def _client(number: int, job: Job, end: float, answers: list[Answer]) -> int:
    """Request until `end` and note each answer; returns the number of lost requests."""
    row, lost, connection = number * len(job.texts) // job.clients, 0, None
    while time.perf_counter() < end:
        begun, text = time.perf_counter(), job.texts[row % len(job.texts)]
        try:
            async with asyncio.timeout(_PATIENCE):
                connection = connection or await asyncio.open_connection("127.0.0.1", job.port)
                connection[1].write(_request(job, text))
                status, body, stays = await _answer(connection[0])
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            lost, connection = lost + 1, None
            await asyncio.sleep(_BACK_OFF)
            continue
        answers.append(Answer(text, status, 1000 * (time.perf_counter() - begun), body))
        if not stays or time.perf_counter() > end:
            connection[1].close()
            connection = None
        row += status == 200
        if status != 200:
            await asyncio.sleep(_BACK_OFF)
    return lost


def _request(job: Job, text: str) -> bytes:
    body = json.dumps({job.key: [text]}).encode()
    head = f"POST {job.path} HTTP/1.1\r\nHost: 127.0.0.1:{job.port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes, bool]:
    """Status, body, and whether the connection stays open."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().splitlines()
    headers = dict(line.split(": ", 1) for line in lines if line)
    body = await reader.readexactly(int(headers["content-length"]))
    return int(first.split()[1]), body, headers.get("connection") != "close"
