"""The fake LLM server as a process of its own, started and stopped by tests."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPO = Path(__file__).parents[2]
_ANSWERS_WITHIN = 200.0


@dataclass(frozen=True)
class Log:
    """The server's log: how often each prompt was answered, which came again after that, and the faults by kind."""

    answers: Counter[str] = field(default_factory=Counter)
    asked_again: set[str] = field(default_factory=set)
    faults: Counter[str] = field(default_factory=Counter)

    @staticmethod
    def read(path: Path) -> Log:
        log = Log()
        for line in path.read_text("utf-8").splitlines():
            entry = json.loads(line)
            if entry["event"] == "answer":
                log.answers[entry["prompt"]] += 1
            elif entry["prompt"] in log.answers:
                log.asked_again.add(entry["prompt"])
            if entry["fault"]:
                log.faults[entry["fault"]] += 1
        return log


@dataclass
class FakeServer:
    process: subprocess.Popen[str]
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def control(self, action: str = "facts", **options: Any) -> dict[str, Any]:
        """Call `/control/<action>`: `set` changes options, `held` waits until answers are held back."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/control/{action}", data=json.dumps(options).encode(), method="POST"
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=_ANSWERS_WITHIN) as got:
            facts: dict[str, Any] = json.load(got)
        return facts

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


def start_fake_llm(*arguments: str) -> FakeServer:
    """Start a server with these arguments of `python -m tests.support.fake_llm`; returns when it listens."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.fake_llm", *arguments], cwd=REPO, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    port = process.stdout.readline()
    assert port, f"the fake server did not start (exit code {process.wait()})"
    return FakeServer(process, int(port))


@contextmanager
def fake_llm(*arguments: str) -> Iterator[FakeServer]:
    server = start_fake_llm(*arguments)
    try:
        yield server
    finally:
        server.stop()
