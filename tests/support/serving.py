"""Served versions whose vectors are known without a model, and a real server in a thread of this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import uvicorn
from starlette.applications import Starlette

from components.encoders.adapter.tokens import Tokens
from components.serving.server.address import ServingLimits, bind
from components.serving.server.serve import uvicorn_config
from components.serving.server.served import Served, TextTokens
from tests.support.toy_context import drawn_from, unit
from tests.support.waiting import wait_until

_LENGTH = 1000


def vector_of(text: str, dim: int = 4) -> npt.NDArray[np.float32]:
    """A unit vector that only this text has."""
    return unit([drawn_from(text, dim)])[0]


@dataclass
class Stub:
    """Stands in for an encoder: keeps the texts of each batch, waits for `go`, and fails at the text `fails_at`."""

    asked: list[list[str]] = field(default_factory=list)
    go: threading.Event = field(default_factory=threading.Event)
    busy: threading.Event = field(default_factory=threading.Event)
    """Set while a call waits or computes."""
    fails_at: str = "fail"
    tokenized: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.go.set()

    def tokens(self, texts: list[str]) -> list[TextTokens]:
        self.tokenized.append(texts)
        ids = [[ord(letter) for letter in text.ljust(_LENGTH, "\0")] for text in texts]
        return [TextTokens(np.array(row, np.int32), len(text.split())) for row, text in zip(ids, texts, strict=True)]

    def tower(self, ids: Tokens) -> npt.NDArray[np.float32]:
        texts = ["".join(map(chr, row)).rstrip("\0") for row in ids.tolist()]
        self.asked.append(texts)
        self.busy.set()
        assert self.go.wait(30)
        self.busy.clear()
        if self.fails_at in texts:
            raise ValueError("this text cannot be read")
        return np.stack([vector_of(text) for text in texts])


def stub_served(stub: Stub, version: int = 1, tower: str = "tower") -> Served:
    name = f"text-encoder/{version}"
    names = frozenset({name, "text-encoder", "text-encoder@champion"})
    return Served(name, names, f"sha{version}", tower, 4, "fp32", stub.tokens, stub.tower, None)


@contextmanager
def live(app: Starlette, limits: ServingLimits) -> Iterator[int]:
    """The application behind real sockets, as `cliptune serve` runs it; yields its port."""
    with bind("127.0.0.1", 0) as place:
        server = uvicorn.Server(uvicorn_config(app, limits))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield place.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()
