"""PostgreSQL stopped, or killed, and started again while captions are written: the stage waits and continues."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from tests.integration.postgres import PostgresServer
from tests.support.fake_llm_process import Log, fake_llm
from tests.support.server_project import ServerProject

pytestmark = pytest.mark.integration
ROWS, BEFORE = 400, 100
UNAVAILABLE = "is unavailable"
PATIENCE_S = 60.0


def _kill(server: PostgresServer) -> None:
    """End the server as a power cut does; returns when all its processes have ended, so that it can be restarted."""
    assert server.process is not None
    family = psutil.Process(server.process.pid).children(recursive=True)
    server.stop(signal.SIGKILL)
    _, alive = psutil.wait_procs(family, timeout=PATIENCE_S)
    assert alive == []


def _stop(server: PostgresServer) -> None:
    """End the server in order; open connections are cut."""
    server.stop(signal.SIGINT)


def _rows(url: str) -> list[int]:
    """How many answers there are, how many keys they have, and how many questions failed."""
    queries = (
        "SELECT count(*) FROM generations",
        "SELECT count(DISTINCT key) FROM generations",
        "SELECT count(*) FROM failures",
    )
    with psycopg.connect(url) as connection:
        return [connection.execute(query).fetchone()[0] for query in queries]


@pytest.mark.parametrize("end", [_stop, _kill])
def test_a_run_waits_for_a_restart_and_sends_no_question_twice(
    end: Any, own_postgres_server: PostgresServer, tmp_path: Path, raw_params: dict[str, Any]
) -> None:
    url, log, printed = own_postgres_server.new_database(), tmp_path / "log", tmp_path / "printed"
    raw_params["synthesize"]["store"] = url
    with fake_llm("--latency", "0.05", "--log", str(log)) as llm, printed.open("w") as errors:
        project = ServerProject.make(tmp_path, raw_params, ROWS, llm.url)
        worker = project.start(errors)
        while llm.control()["sent"] < BEFORE:
            assert worker.poll() is None, printed.read_text()
            time.sleep(0.01)
        end(own_postgres_server)
        deadline = time.monotonic() + PATIENCE_S
        while UNAVAILABLE not in printed.read_text():
            assert worker.poll() is None, printed.read_text()
            assert time.monotonic() < deadline, "the stage has not noticed"
            time.sleep(0.02)
        own_postgres_server.start()
        output, _ = worker.communicate(timeout=PATIENCE_S)
        assert worker.returncode == 0, printed.read_text()
    received = Log.read(log)
    assert sorted(received.answers.values()) == [1] * ROWS
    assert received.asked_again == set()
    assert _rows(url) == [ROWS, ROWS, 0]
    assert project.table()["accepted"].to_pylist() == [True] * ROWS
    assert f"generated {ROWS}, failed 0" in output
    assert own_postgres_server.password not in printed.read_text() + output
