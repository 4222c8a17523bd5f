"""A worker of a slow server, killed with SIGKILL several times: no answer is lost and no question is sent twice."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_llm_process import FakeServer, Log, fake_llm
from tests.support.server_project import ServerProject

ROWS, KILLS = 600, 4
LATENCY = ("--latency", "0.1")


def _table_of_an_undisturbed_run(folder: Path, params: dict[str, Any]) -> Any:
    with fake_llm(*LATENCY) as server:
        project = ServerProject.make(folder, params, ROWS, server.url)
        ended = project.run()
        assert ended.returncode == 0, ended.stderr
        return project.table()


def _kill_when(project: ServerProject, server: FakeServer, answers: int) -> None:
    """Run the stage and kill it once the server has sent so many answers.

    The server then holds back all other answers, and every sent one must soon be in the store: an answer that was sent
    but not yet stored at the kill would be sent twice.
    """
    server.control("set", hold_after=answers)
    worker = project.start()
    assert server.control("held")["sent"] == answers
    project.wait_until_stored(answers)
    assert worker.poll() is None, "the stage ended before it could be killed"
    worker.send_signal(signal.SIGKILL)
    worker.communicate()
    assert not project.table_path.exists()
    server.control("set", hold_after=None)


@pytest.mark.integration
@pytest.mark.timeout(900)
def test_killed_at_several_moments_the_table_is_that_of_an_undisturbed_run(
    tmp_path: Path, raw_params: dict[str, Any]
) -> None:
    wanted = _table_of_an_undisturbed_run(tmp_path / "undisturbed", raw_params)
    moments = sorted(random.Random(4).sample(range(1, ROWS), KILLS))
    log = tmp_path / "log"
    with fake_llm(*LATENCY, "--log", str(log)) as server:
        project = ServerProject.make(tmp_path / "killed", raw_params, ROWS, server.url)
        for answers in moments:
            _kill_when(project, server, answers)
        ended = project.run()
    assert ended.returncode == 0, ended.stderr
    assert project.table().equals(wanted)
    received = Log.read(log)
    assert received.asked_again == set()
    assert sorted(received.answers.values()) == [1] * ROWS
