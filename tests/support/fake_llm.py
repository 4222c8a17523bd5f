"""An OpenAI-compatible server whose answers follow from the prompt and whose faults follow from a seed.

It prints its port when it listens. Every request it gets and every answer it has sent is a line of its log. While it
runs, `/control/...` changes what it does; see `tests.support.fake_llm_process`.

    python -m tests.support.fake_llm --latency 0.1 --error http_500=0.2 --error timeout=0.1
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
import uvicorn
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

QUIET_S = 0.1
"""How long nothing must have been sent before `/control/held` says so."""

NONSENSE = (
    "<html><body>It works!</body></html>",
    "null",
    "[]",
    '{"choices": []}',
    '{"choices": null}',
    '{"choices": [{"message": null}]}',
    '{"choices": [{"message": {"content": 7}}]}',
    '{"error": {"message": "upstream is busy"}}',
)
"""Bodies of HTTP 200 that answer nothing."""


@dataclass
class Options:
    """The server's behaviour; `/control/set` changes it."""

    latency: float = 0.0
    errors: dict[str, float] = field(default_factory=dict)
    """Shares of `http_<code>`, `timeout`, `truncated` and `nonsense`, drawn for each request."""
    instead: dict[str, list[str | None]] = field(default_factory=dict)
    """Text -> content and finish reason that every prompt gets which holds it."""
    key: str | None = None
    said: str = "out of order"
    """The message of errors."""
    hold_after: int | None = None
    """Answers beyond this number of them are held back for ever."""


class FakeLlm:
    def __init__(self, options: Options, seed: int, log: Path | None) -> None:
        self.options = options
        # The fault of the n-th arrival follows from the seed alone, whatever else is drawn meanwhile.
        self._faults = random.Random(seed)
        self._random = random.Random(seed)
        self._log = log.open("a", buffering=1, encoding="utf-8") if log else None
        self._sending = 0
        self._last_sent = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response: Response | None = JSONResponse({"error": {"message": "no such path"}}, 404)
        if request.url.path.startswith("/control/"):
            response = await self._control(request)
        elif request.url.path in ("/v1/chat/completions", "/v1/completions"):
            response = await self._complete(request)
        if response is not None:
            await response(scope, receive, send)

    async def _control(self, request: Request) -> Response:
        action = request.url.path.removeprefix("/control/")
        if action == "set":
            for name, value in (await request.json()).items():
                setattr(self.options, name, value)
        elif action == "held":
            loop = asyncio.get_running_loop()
            while self._sending < (self.options.hold_after or 0) or loop.time() - self._last_sent < QUIET_S:
                await asyncio.sleep(QUIET_S / 10)
        return JSONResponse({"sent": self._sending})

    async def _complete(self, request: Request) -> Response | None:
        """An answer or an error; none if the client gave up."""
        body = await request.json()
        prompt = body["prompt"] if "prompt" in body else json.dumps(body["messages"])
        digest = hashlib.sha256(prompt.encode()).hexdigest()
        refusal = self._refusal(request)
        fault = None if refusal else self._fault()
        self._write("arrival", digest, fault)
        if refusal is not None:
            return refusal
        await asyncio.sleep(self.options.latency)
        if fault == "timeout":
            await _until_gone(request)
        if await request.is_disconnected():
            return None
        if fault is not None:
            return self._broken(fault, body, prompt)
        if self.options.hold_after is not None and self._sending >= self.options.hold_after:
            await _until_gone(request)
            return None
        self._sending += 1
        return JSONResponse(_response(body, prompt, self.options), background=BackgroundTask(self._sent, digest))

    async def _sent(self, digest: str) -> None:
        self._last_sent = asyncio.get_running_loop().time()
        self._write("answer", digest, None)

    def _refusal(self, request: Request) -> Response | None:
        given = request.headers.get("authorization")
        if self.options.key is None or given == f"Bearer {self.options.key}":
            return None
        return _error(401, f"Incorrect API key provided: {given}")

    def _fault(self) -> str | None:
        drawn = self._faults.random()
        for kind, share in self.options.errors.items():
            drawn -= share
            if drawn < 0:
                return kind
        return None

    def _broken(self, kind: str, body: dict[str, Any], prompt: str) -> Response:
        if kind.startswith("http_"):
            return _error(int(kind.removeprefix("http_")), self.options.said)
        if kind == "truncated":
            whole = json.dumps(_response(body, prompt, self.options))
            return Response(whole[: len(whole) // 2], media_type="application/json")
        said = self._random.choice(NONSENSE)
        return Response(said, media_type="text/html" if said.startswith("<") else "application/json")

    def _write(self, event: str, digest: str, fault: str | None) -> None:
        if self._log:
            self._log.write(json.dumps({"event": event, "prompt": digest, "fault": fault}) + "\n")


async def _until_gone(request: Request) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(QUIET_S / 10)


def _response(body: dict[str, Any], prompt: str, options: Options) -> dict[str, Any]:
    text: str | None = f"a different picture {hashlib.sha256(prompt.encode()).hexdigest()[:12]}"
    reason: str | None = "stop"
    for held, (content, ended_by) in options.instead.items():
        if held in prompt:
            text, reason = content, ended_by
    said = {"text": text} if "prompt" in body else {"message": {"role": "assistant", "content": text}}
    return {"id": "fake", "object": "completion", "choices": [{"index": 0, "finish_reason": reason, **said}]}


def _error(code: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message, "code": code}}, code)


def main(
    port: int = 0,
    latency: float = 0.0,
    error: Annotated[list[str] | None, typer.Option(help="A kind of error and its share: http_500=0.1.")] = None,
    seed: int = 0,
    log: Path | None = None,
) -> None:
    """Serve on 127.0.0.1 until killed; prints the port."""
    errors = {kind: float(share) for kind, _, share in (text.partition("=") for text in error or [])}
    listening = socket.create_server(("127.0.0.1", port), backlog=512)
    # Headers and body are sent one after the other; the second would wait for the first one's acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    app = FakeLlm(Options(latency, errors), seed, log)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", timeout_keep_alive=60))
    print(listening.getsockname()[1], flush=True)
    server.run(sockets=[listening])


if __name__ == "__main__":
    typer.run(main)
