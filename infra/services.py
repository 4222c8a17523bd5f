"""Starts the stack's services under supervisors, logs them to files, watches them and stops them together."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import psutil

from components.core.system.errors import InputError
from components.core.system.processes import end, supervised

GRACE = 25.0
"""Seconds that a service and all its processes have to end; more than a flow gives its stage."""


@dataclass
class Service:
    """A running child process and its log file."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raise `InputError` when the process has ended; the message has the last line of its log."""
        if self.process.poll() is not None:
            raise InputError(
                f"{self.name} ended with code {self.process.returncode}: {_last_line(self.log)} (see {self.log})"
            )


@dataclass
class Services:
    """All services of a stack; the end of the block stops them, in the reverse order of their start."""

    logs: Path
    environment: Mapping[str, str]
    running: list[Service] = field(default_factory=list)
    _files: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Services:
        self.logs.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A second Ctrl-C must not interrupt the end of the other services.
        handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            for service in reversed(self.running):
                end(service.process, 2 * GRACE)
        finally:
            self._files.close()
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Service:
        """Start a service; its output goes to `<logs>/<name>.log`.

        Args:
            command: command line, which every user of this machine can read: it must hold no secret.
        """
        log = self.logs / f"{name}.log"
        process = subprocess.Popen(
            supervised(command, GRACE),
            stdin=subprocess.DEVNULL,
            stdout=self._files.enter_context(log.open("wb")),
            stderr=subprocess.STDOUT,
            env={**self.environment, **(environment or {})},
        )
        service = Service(name, process, log)
        self.running.append(service)
        return service

    def check(self) -> None:
        """Raise `InputError` when any service has ended."""
        for service in self.running:
            service.check()

    def watch(self) -> None:
        """Wait for Ctrl-C; raise `InputError` when a service ends."""
        while True:
            self.check()
            time.sleep(1)

    def call(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Run a command to its end, logged like a service."""
        service = self.start(name, command, environment)
        self.running.remove(service)
        try:
            while service.process.poll() is None:
                self.check()
                time.sleep(0.1)
        finally:
            end(service.process, 2 * GRACE)
        if service.process.returncode != 0:
            service.check()

    def wait_until(self, healthy: Callable[[], bool], seconds: float, name: str, tick: Callable[[], None]) -> None:
        """Wait for a service, and call `tick` twice a second."""
        deadline = time.monotonic() + seconds
        while not healthy():
            self.check()
            if time.monotonic() > deadline:
                raise InputError(f"{name} did not answer within {seconds:.0f} s: see {self.logs}")
            tick()
            time.sleep(0.5)


def is_healthy(url: str) -> bool:
    """Whether a GET of `url` succeeds."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def assert_ports_free(ports: Mapping[str, int]) -> None:
    """Check the ports of a stack's options.

    Args:
        ports: option -> port.
    """
    for option, port in ports.items():
        if other := next((name for name, value in ports.items() if value == port and name != option), None):
            raise InputError(f"{option} and {other} are both {port}: give another port with {option}")
        with socket.socket() as probe:
            # Servers set this too; otherwise the port of a stack that has just ended looks taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                raise InputError(f"port {port} is taken{_owner(port)}, or give another port with {option}") from None


def _owner(port: int) -> str:
    """The process that listens on a port and how to stop it; a killed stack leaves its servers running."""
    pids = [it.pid for it in psutil.net_connections("tcp") if it.laddr.port == port and it.pid]
    with suppress(IndexError, psutil.Error):
        return f" by process {pids[0]} ({' '.join(psutil.Process(pids[0]).cmdline())[:80]}): run `kill {pids[0]}`"
    return ": stop the program that uses it"


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text("utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "its log is empty"
