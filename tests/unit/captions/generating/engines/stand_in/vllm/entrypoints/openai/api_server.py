"""Stands in for vLLM's server where a test is about the process: its answers quote the question and the flags.

Questions with "die", "dead engine" or "wait" have that effect. The model's folder gets the ids of this process and of a
child.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """As vLLM's routes, as far as they are used."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer whether the model is loaded."""
        self._reply(200 if self.path == "/health" else 404, {})

    def do_POST(self) -> None:
        """Answer a chat, or continue a text."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = body["messages"] if self.path == "/v1/chat/completions" else body["prompt"]
        if self.headers["Authorization"] != f"Bearer {os.environ['VLLM_API_KEY']}":
            self._reply(401, {})
            return
        text = json.dumps(asked)
        if "dead engine" in text:
            print("VLLMServerError: the engine is dead", "x WARNING 1 of `OSError: 24`", sep="\n", flush=True)
            os._exit(1)
        elif "die" in text:
            os._exit(7)
        elif "wait" in text:
            time.sleep(600)
        else:
            self._reply(200, {"choices": [self._choice(asked, body)]})

    def _choice(self, asked: Any, body: dict[str, Any]) -> dict[str, Any]:
        names = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
        shown = {
            "asked": asked,
            "body": {name: value for name, value in body.items() if name not in ("messages", "prompt")},
            "flags": sys.argv[1:],
            **{name: os.environ.get(name) for name in names},
        }
        text = f" {json.dumps(shown)}\0\n"
        answer = {"text": text} if "prompt" in body else {"message": {"content": text}}
        return answer | {"finish_reason": "stop"}

    def _reply(self, status: int, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing of each request."""


def main(flags: list[str]) -> None:
    """Serve on the port that the flags name."""
    given = dict(flag.removeprefix("--").partition("=")[::2] for flag in flags)
    subprocess.run(["echo", "noise of a child"], check=True)
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    (Path(given["model"]) / "pids").write_text(f"{os.getpid()} {child.pid}")
    if "broken" in given:
        raise ValueError("these settings do not go together")
    if "invalid" in given:
        sys.exit("ValidationError: 1 validation error for ModelConfig\n  Value error, 9 is too long")
    time.sleep(600 if "slow" in given else 0)
    ThreadingHTTPServer((given["host"], int(given["port"])), Handler).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
