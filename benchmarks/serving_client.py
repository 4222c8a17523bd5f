"""Many clients of a server of text embeddings, in a process of their own.

Each has one connection of plain asyncio streams, because the work of a full HTTP client would be counted against the
server, which shares the machine. Answers are read when all is over.

    python -m benchmarks.serving_client <job.json> <answers.json>
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_PATIENCE = 60.0
"""Seconds after which a request counts as lost."""
_BACK_OFF = 0.02
"""Seconds that a client waits after a refusal."""


@dataclass(frozen=True)
class Job:
    """What clients do: each sends one text after the other, from its own place in the list on, again and again.

    Attributes:
        port: of 127.0.0.1.
        path: of the server.
        key: name of the list of texts in the body, `input` or `inputs`.
        more: further keys of the body.
        texts: each is a request.
        clients: how many ask at the same time.
        seconds: how long they begin new requests.
    """

    port: int
    path: str
    key: str
    more: dict[str, Any]
    texts: list[str]
    clients: int
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Attributes:
        seconds: from the first request to the last answer.
        statuses: how many answers had which status.
        lost: requests without an answer.
        latencies: milliseconds of each answer with status 200.
        vectors: those answers' texts and vectors.
    """

    seconds: float
    statuses: dict[str, int]
    lost: int
    latencies: list[float]
    vectors: list[tuple[str, list[float]]]

    @property
    def rate(self) -> float:
        """Right answers per second."""
        return self.statuses.get("200", 0) / self.seconds

    def percentile(self, percent: float) -> float:
        """Of the latencies, in milliseconds."""
        return float(np.percentile(self.latencies, percent)) if self.latencies else float("nan")

    def largest_difference(self, known: dict[str, npt.NDArray[np.float32]]) -> float:
        """The largest difference of any number of any vector from its right value."""
        if not self.vectors:
            return float("nan")
        expected = np.stack([known[text] for text, _ in self.vectors])
        return float(np.abs(np.array([vector for _, vector in self.vectors]) - expected).max())


def run_clients(job: Job, folder: Path) -> Outcome:
    """Do a job in a process of its own."""
    given, made = folder / "job.json", folder / "answers.json"
    given.write_text(json.dumps(asdict(job)), encoding="utf-8")
    command = [sys.executable, "-m", "benchmarks.serving_client", str(given), str(made)]
    # Where this package is found, wherever the caller is.
    root, patience = Path(__file__).parents[1], job.seconds + _PATIENCE + 120
    subprocess.run(command, check=True, timeout=patience, stdin=subprocess.DEVNULL, cwd=root)
    found = json.loads(made.read_text("utf-8"))
    return Outcome(**found)


class _Clients:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._requests = [_request(job, text) for text in job.texts]
        self.answers: list[tuple[int, int, float, bytes]] = []
        self.lost = 0

    async def run(self) -> float:
        """Have all clients ask; returns the seconds it took."""
        begun = time.perf_counter()
        end = begun + self._job.seconds
        await asyncio.gather(*(self._client(number, end) for number in range(self._job.clients)))
        return time.perf_counter() - begun

    async def _client(self, number: int, end: float) -> None:
        count = len(self._requests)
        row, connection = number * count // self._job.clients, None
        while time.perf_counter() < end:
            begun = time.perf_counter()
            try:
                async with asyncio.timeout(_PATIENCE):
                    connection = connection or await asyncio.open_connection("127.0.0.1", self._job.port)
                    connection[1].write(self._requests[row % count])
                    status, body, stays = await _answer(connection[0])
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                self.lost, connection = self.lost + 1, None
                await asyncio.sleep(_BACK_OFF)
                continue
            self.answers.append((row % count, status, 1000 * (time.perf_counter() - begun), body))
            if not stays:
                connection[1].close()
                connection = None
            if status == 200:
                row += 1
            else:
                await asyncio.sleep(_BACK_OFF)
        if connection is not None:
            connection[1].close()


def _request(job: Job, text: str) -> bytes:
    body = json.dumps({job.key: [text], **job.more}).encode()
    head = f"POST {job.path} HTTP/1.1\r\nHost: 127.0.0.1:{job.port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes, bool]:
    """Status, body, and whether the connection stays open."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().splitlines()
    headers = dict(line.split(": ", 1) for line in lines if line)
    body = await reader.readexactly(int(headers["content-length"]))
    return int(first.split()[1]), body, headers.get("connection") != "close"


def _vector(body: bytes) -> list[float]:
    """The only vector of an answer of either server."""
    result = json.loads(body)
    found: list[float] = result["data"][0]["embedding"] if "data" in result else result["predictions"][0]
    return found


def main(given: Path, made: Path) -> None:
    """Do the job in the file `given` and write its outcome to `made`."""
    job = Job(**json.loads(given.read_text("utf-8")))
    clients = _Clients(job)
    seconds = asyncio.run(clients.run())
    good = [answer for answer in clients.answers if answer[1] == 200]
    statuses = [str(status) for _, status, _, _ in clients.answers]
    outcome = Outcome(
        seconds=seconds,
        statuses={status: statuses.count(status) for status in set(statuses)},
        lost=clients.lost,
        latencies=[latency for _, _, latency, _ in good],
        vectors=[(job.texts[row], _vector(body)) for row, _, _, body in good],
    )
    made.write_text(json.dumps(asdict(outcome)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
