"""Starts the stack's services as process groups, logs them to files, watches them and stops them together."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import psutil

from components.core.errors import InputError
from components.core.processes import signal_group

GRACE = 25.0
"""Seconds to stop before being killed; more than a flow gives its stage."""


@dataclass
class Service:
    """A running child process and its log file."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    stopped_by: signal.Signals = signal.SIGTERM

    def check(self) -> None:
        """Raise `InputError` when the process has ended; the message carries the last line of its log."""
        if self.process.poll() is not None:
            raise InputError(
                f"{self.name} ended with code {self.process.returncode}: {last_line(self.log)} (see {self.log})"
            )


@dataclass
class Services:
    """All services of a stack; leaving the block stops them, the last one first."""

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
        # A second Ctrl-C must not leave half of the children behind.
        handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            for service in reversed(self.running):
                stop(service.process, service.stopped_by)
        finally:
            self._files.close()
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def start(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        user: int | None = None,
        stopped_by: signal.Signals = signal.SIGTERM,
    ) -> Service:
        """Start a service; what it prints goes to `<logs>/<name>.log`.

        Args:
            name: of its log.
            command: its command line, which everybody on this machine can read: secrets belong elsewhere.
            environment: what it sees besides the environment of all.
            user: who runs it; oneself when not given.
            stopped_by: the signal at which it ends in good order.
        """
        log = self.logs / f"{name}.log"
        stream = self._files.enter_context(log.open("wb"))
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**self.environment, **(environment or {})},
            start_new_session=True,
            user=user,
        )
        service = Service(name, process, log, stopped_by)
        self.running.append(service)
        return service

    def check(self) -> None:
        """Raise `InputError` when any service has ended."""
        for service in self.running:
            service.check()

    def watch(self) -> None:
        """Stay until Ctrl-C; raise `InputError` when any service has ended by itself."""
        while True:
            self.check()
            time.sleep(1)

    def call(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Run a command to its end, logged like a service.

        Raises:
            InputError: it failed.
        """
        service = self.start(name, command, environment)
        while service.process.poll() is None:
            self.check_others(service)
            time.sleep(0.1)
        self.running.remove(service)
        if service.process.returncode != 0:
            service.check()

    def check_others(self, service: Service) -> None:
        """Raise `InputError` when a service other than this one has ended."""
        for other in self.running:
            if other is not service:
                other.check()


def stop(process: subprocess.Popen[bytes], by: signal.Signals = signal.SIGTERM) -> None:
    """End a service with all its descendants, those in sessions of their own (the worker's flow runs) first.

    They get SIGTERM, the service itself the signal `by`, and time to end their own children; what outlasts the grace is
    killed.
    """
    family = _descendants(process.pid)
    sessions = [member for member in family if _leads_session(member.pid)]
    for member in sessions:
        signal_group(member.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE
    while any(runs(member) for member in sessions) and time.monotonic() < deadline:
        time.sleep(0.1)
    signal_group(process.pid, by)
    # Waiting through `process` keeps its exit code, which psutil would take.
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=GRACE)
    signal_group(process.pid, signal.SIGKILL)
    process.wait()
    for member in filter(runs, family):
        with suppress(psutil.NoSuchProcess):
            member.kill()


def wait_until(
    healthy: Callable[[], bool], services: Services, seconds: float, what: str, tick: Callable[[], None]
) -> None:
    """Wait for a service, calling `tick` now and then.

    Raises:
        InputError: it did not become healthy in time, or a service ended meanwhile.
    """
    deadline = time.monotonic() + seconds
    while not healthy():
        services.check()
        if time.monotonic() > deadline:
            raise InputError(f"{what} did not answer within {seconds:.0f} s: see {services.logs}")
        tick()
        time.sleep(0.5)


def answers(url: str) -> bool:
    """Whether a GET of `url` succeeds."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def assert_ports_free(ports: Mapping[str, int]) -> None:
    """Check the ports of a stack's options.

    Args:
        ports: option -> port.

    Raises:
        InputError: two options have one port, or a process listens on it; the message names the process if it is the
            user's own.
    """
    for option, port in ports.items():
        if other := next((name for name, value in ports.items() if value == port and name != option), None):
            raise InputError(f"{option} and {other} are both {port}: give another port with {option}")
        with socket.socket() as probe:
            # Servers set this too; without it a port of a just stopped stack looks taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                raise InputError(f"port {port} is taken{_owner(port)}, or give another port with {option}") from None


def _owner(port: int) -> str:
    """The process that listens on a port and how to stop it; a killed stack leaves its servers running."""
    found = [one.pid for one in psutil.net_connections("tcp") if one.laddr.port == port and one.pid]
    with suppress(IndexError, psutil.Error):
        return f" by process {found[0]} ({' '.join(psutil.Process(found[0]).cmdline())[:80]}): run `kill {found[0]}`"
    return ": stop the program that uses it"


def runs(process: psutil.Process) -> bool:
    """Whether a process is alive; one that is dead and not yet waited for is not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def last_line(log: Path) -> str:
    """The last non-empty line of a log."""
    lines = [line.strip() for line in log.read_text("utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _leads_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False
