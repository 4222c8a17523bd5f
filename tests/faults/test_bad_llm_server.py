"""Servers that fail in every way, or end, in the middle of a run of the stage."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_llm_process import Log, fake_llm, start_fake_llm
from tests.support.server_project import ServerProject

pytestmark = pytest.mark.integration
ROWS = 300
ERRORS = {"http_500": 0.2, "timeout": 0.1, "truncated": 0.05, "nonsense": 0.01}


def test_every_row_is_accepted_or_rejected_with_a_reason(tmp_path: Path, raw_params: dict[str, Any]) -> None:
    log = tmp_path / "log"
    shares = [text for kind, share in ERRORS.items() for text in ("--error", f"{kind}={share}")]
    with fake_llm("--seed", "3", "--log", str(log), *shares) as server:
        # Few attempts, so that some rows are given up.
        project = ServerProject.make(tmp_path, raw_params, ROWS, server.url, timeout_s=1.0, attempts=2)
        first = project.run()
        assert first.returncode == 1, first.stdout
        assert "questions failed (reasons: `cliptune answers stats`): run the command again" in first.stderr
        rows = project.table().to_pylist()
        server.control("set", errors={})
        second = project.run()
        assert second.returncode == 0, second.stderr
    assert Log.read(log).faults.keys() == ERRORS.keys()
    assert [row["id"] for row in rows] == [f"p{number}" for number in range(ROWS)]
    assert len({row["key"] for row in rows}) == ROWS
    rejected = [row for row in rows if not row["accepted"]]
    assert 0 < len(rejected) < ROWS / 2
    assert all((row["text"] is not None, row["reason"] is None) == (row["accepted"],) * 2 for row in rows)
    reasons = {row["reason"] for row in rejected}
    known = {"HTTP 500", "time-out", "response is not JSON", "response without an answer"}
    assert reasons <= {f"failed: {reason} after {attempts} attempts" for reason in known for attempts in range(2, 20)}
    # The next run repeats only the failed questions.
    assert Counter(project.table()["accepted"].to_pylist()) == {True: ROWS}
    assert f"replayed {ROWS - len(rejected)}, generated {len(rejected)}, failed 0" in second.stdout
    kept = [row for row in rows if row["accepted"]]
    assert [row for row in project.table().to_pylist() if row["id"] in {row["id"] for row in kept}] == kept


def test_an_unavailable_server_stops_the_run_and_no_row_is_rejected(tmp_path: Path, raw_params: dict[str, Any]) -> None:
    server = start_fake_llm("--latency", "0.1")
    try:
        project = ServerProject.make(tmp_path, raw_params, ROWS, server.url, give_up_s=2.0)
        worker = project.start()
        while server.control()["sent"] < 20:
            time.sleep(0.01)
    finally:
        server.stop()
    _, errors = worker.communicate()
    assert worker.returncode == 1
    lines = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert "Traceback" not in errors
    assert f"{server.url} has answered nothing for 2 seconds (connection failed)" in lines[0]
    assert not project.table_path.exists()
    assert project.stored("failures") == 0
    kept = project.stored()
    assert kept >= 10
    with fake_llm("--port", str(server.port)):
        second = project.run()
    assert second.returncode == 0, second.stderr
    assert f"replayed {kept}, generated {ROWS - kept}, failed 0, rejected 0" in second.stdout


def test_refusals_and_empty_answers_are_counted_and_the_others_are_kept(
    tmp_path: Path, raw_params: dict[str, Any]
) -> None:
    with fake_llm() as server:
        instead = {"number 11 ": ["", "stop"], "number 12 ": [None, "content_filter"], "number 13 ": ["\n", "stop"]}
        server.control("set", instead=instead)
        project = ServerProject.make(tmp_path, raw_params, 60, server.url)
        first = project.run()
        assert first.returncode == 0, first.stderr
        reasons = Counter(row["reason"] for row in project.table().to_pylist() if not row["accepted"])
        assert reasons == {
            "failed: the model said nothing": 2,
            "failed: the server's content filter stopped the answer": 1,
        }
        server.control("set", instead={})
        second = project.run()
    assert "replayed 57, generated 3, failed 0" in second.stdout, second.stderr
