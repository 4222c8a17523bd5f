"""Services are watched while they run and leave nothing behind."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import psutil
import pytest

import infra.services
from components.core.system.errors import InputError
from infra.services import Services, assert_ports_free
from tests.support.waiting import runs, wait_until

# A worker and a flow run in a session of its own, which needs a moment to write down how it ended.
_WORKER = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True)
time.sleep(120)
"""
_LISTENS = """
import os, signal, sys, time
def stop(*_):
    time.sleep(0.3)
    open("ended", "w").write("well")
    sys.exit()
signal.signal(signal.SIGTERM, stop)
open("flow", "w").write(str(os.getpid()))
time.sleep(120)
"""
_DEAF = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open("flow", "w").write(str(os.getpid()))
time.sleep(120)
"""


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Services:
    monkeypatch.chdir(tmp_path)
    return Services(tmp_path / "logs", os.environ)


def _started(services: Services, flow: str) -> int:
    services.start("worker", [sys.executable, "-c", _WORKER, flow])
    services.wait_until(lambda: Path("flow").exists() and Path("flow").read_text() != "", 30, "flow", lambda: None)
    return int(Path("flow").read_text())


@pytest.mark.parametrize("flow", [_LISTENS, _DEAF], ids=["listens", "deaf"])
def test_stopping_waits_for_flow_runs_in_their_own_sessions_and_kills_deaf_ones(
    flow: str, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    if flow is _DEAF:
        monkeypatch.setattr(infra.services, "GRACE", 0.3)
    with services:
        run = psutil.Process(_started(services, flow))
    wait_until(lambda: not runs(run), 10)
    assert flow is _DEAF or Path("ended").read_text() == "well"


def test_services_are_stopped_after_an_error(services: Services) -> None:
    with pytest.raises(RuntimeError), services:  # noqa: PT012
        service = services.start("sleeper", [sys.executable, "-c", "import time; time.sleep(120)"])
        raise RuntimeError
    assert service.process.poll() is not None


def test_faults_of_services_are_named_with_their_last_line(services: Services) -> None:
    with services:
        with pytest.raises(InputError, match="Prefect did not answer within 0 s"):
            services.wait_until(lambda: False, 0, "Prefect", lambda: None)
        services.call("fine", [sys.executable, "-c", ""])
        with pytest.raises(InputError, match="deploy ended with code 2: why"):
            services.call("deploy", [sys.executable, "-c", "print('why'); exit(2)"])
        service = services.start("server", [sys.executable, "-c", "print('no'); print('disk full'); exit(3)"])
        service.process.wait()
        with pytest.raises(InputError, match=r"server ended with code 3: disk full \(see .*server\.log\)"):
            services.check()


def test_taken_port_is_named_with_its_process() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"{port} is taken by process {os.getpid()} .*run `kill .* --mlflow-port"):
            assert_ports_free({"--mlflow-port": port})
    assert_ports_free({"--mlflow-port": port})
    with pytest.raises(InputError, match=f"--a and --b are both {port}"):
        assert_ports_free({"--a": port, "--b": port})
