"""OpenAI-compatible servers that refuse what real ones refuse, with the shapes of their errors; in a test's threads."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """A response; `body` is sent as JSON unless it is bytes, and again and again if it is `endless`."""

    body: object
    code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    endless: bool = False


Script = Callable[[Body, int], Answer]
"""The answer to a request, which is the n-th, from 1."""


def said(text: str | None, ended_by: str | None = "stop") -> Answer:
    return Answer({"choices": [{"index": 0, "finish_reason": ended_by, "message": {"content": text}}]})


_CAPTION = said("A youngster in pink climbs steps.")


def openai_error(message: str, param: str | None = None, code: str | int | None = None, status: int = 400) -> Answer:
    """The error of OpenAI, Azure OpenAI, vLLM, Ollama and llama.cpp: one object with other values of `code`."""
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return Answer({"error": error}, status)


def refuses(parameter: str, refusal: Answer) -> Script:
    """A model that refuses a body with this parameter."""
    return lambda body, _number: refusal if parameter in body else _CAPTION


azure = refuses("seed", openai_error("Unrecognized request argument supplied: seed"))
"""A deployment behind an API version without seeds."""
vllm = refuses("seed", openai_error("CPU does not support per-request seed", code=400))
"""vLLM on a CPU; keys of a body that it does not know are warnings in its log."""
_EXTRA = {"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted", "input": 7}
mistral = refuses("seed", Answer({"detail": [_EXTRA]}, 422))
"""FastAPI's refusal of keys that its schema does not have."""


def gpt_5(body: Body, _number: int) -> Answer:
    unsupported = "Unsupported {}: '{}' {} with this model."
    if "max_tokens" in body:
        said = unsupported.format("parameter", "max_tokens", "is not supported")
        return openai_error(f"{said} Use 'max_completion_tokens' instead.", "max_tokens", "unsupported_parameter")
    if body.get("temperature", 1) != 1:
        said = unsupported.format("value", "temperature", f"does not support {body['temperature']}")
        return openai_error(f"{said} Only the default (1) value is supported.", "temperature", "unsupported_value")
    if "top_p" in body:
        said = unsupported.format("parameter", "top_p", "is not supported")
        return openai_error(said, "top_p", "unsupported_parameter")
    return _CAPTION


def ollama(_body: Body, _number: int) -> Answer:
    error = {"message": 'model "fake" not found, try pulling it first', "type": "not_found_error", "param": None}
    return Answer({"error": {**error, "code": None}}, 404)


def llama_cpp(_body: Body, number: int) -> Answer:
    """llama.cpp's server while it loads its model, then up."""
    if number < 4:
        return Answer({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, 503)
    return _CAPTION


def claude(body: Body, _number: int) -> Answer:
    if {"temperature", "top_p"} <= body.keys():
        return openai_error("`temperature` and `top_p` cannot both be specified for this model. Please use only one.")
    return _CAPTION


def blind(body: Body, _number: int) -> Answer:
    """A model without a vision part."""
    shown = "image_url" in json.dumps(body)
    return openai_error("image input is not supported - hint: you may need to provide the mmproj", status=400) if shown else said("yes")  # fmt: skip # noqa: E501


def unpaid(_body: Body, _number: int) -> Answer:
    message = "You exceeded your current quota, please check your plan and billing details."
    return openai_error(message, None, "insufficient_quota", 429)


def busy(_body: Body, number: int) -> Answer:
    """Too many requests, and soon fewer."""
    if number < 6:
        error = {"message": "Rate limit reached for fake.", "type": "requests", "code": "rate_limit_exceeded"}
        return Answer({"error": error}, 429, {"retry-after": "0.01"})
    return _CAPTION


def web_page(_body: Body, _number: int) -> Answer:
    return Answer(b"<!doctype html><html><body>Welcome</body></html>", headers={"content-type": "text/html"})


def wrong_path(_body: Body, _number: int) -> Answer:
    return Answer({"status": "ok"})


def bomb(_body: Body, _number: int) -> Answer:
    return Answer(gzip.compress(b" " * (64 << 20)), headers={"content-encoding": "gzip"})


def endless(_body: Body, _number: int) -> Answer:
    return Answer(b" " * (1 << 20), headers={"transfer-encoding": "chunked"}, endless=True)


def redirect_to(url: str) -> Script:
    return lambda _body, _number: Answer(b"", 307, {"location": url})


@dataclass
class Scripted:
    """A running server; `bodies` and `keys` are those of all requests, in order."""

    url: str
    bodies: list[Body]
    keys: list[str | None]


@contextmanager
def scripted(script: Script, pages: Mapping[str, Any] | None = None, login: str = "") -> Iterator[Scripted]:
    """Serve on a free port of 127.0.0.1 for the length of the block; other paths than a chat answer 404.

    With `pages`, JSON by path, it answers only these, and with `login` only to clients that send it.
    """
    bodies: list[Body] = []
    keys: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            bodies.append(body)
            keys.append(self.headers["authorization"])
            self._send(script(body, len(bodies))) if pages is None else self.do_GET()

        def do_GET(self) -> None:
            path, known = self.path.partition("?")[0], pages or {}
            code = 401 if login and self.headers["authorization"] != login else 200 if path in known else 404
            self._send(Answer(known.get(path, {"error": "no such path"}), code))

        def _send(self, answer: Answer) -> None:
            body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            self.send_response(answer.code)
            length = {} if answer.endless else {"content-length": str(len(body))}
            for name, value in {"content-type": "application/json", **length, **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                while answer.endless:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
                self.wfile.write(body)
            except OSError:
                # The client has left.
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Scripted(f"http://127.0.0.1:{server.server_port}/v1", bodies, keys)
    finally:
        server.shutdown()
        server.server_close()
