"""Whatever ends a flow ends the processes of its stage."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import flows.commands
from components.core.processes import CommandError
from flows.commands import run_logged, stop_group

REPO = Path(__file__).parents[2]

# A stage as DVC runs it: a command whose child does the work; `{ignore}` makes the child deaf to SIGTERM.
_CHILD = "import os, signal, time; {ignore}open('child', 'w').write(str(os.getpid())); time.sleep(120)"
_STAGE = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
_DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN); "

_FLOW = """
import logging, signal, sys
import flows.commands as commands
commands.get_run_logger = lambda: logging.getLogger("flow")
commands.GRACE = float(sys.argv[3])
def stop(*_):
    raise SystemExit(3)
signal.signal(signal.SIGTERM, stop)
commands.run_logged([sys.executable, "-c", sys.argv[1], sys.argv[2]], "stage")
"""


def _gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def _child(folder: Path, process: subprocess.Popen[bytes]) -> int:
    path = folder / "child"
    while not path.exists() or not path.read_text():
        assert process.poll() is None, "the flow ended before its stage began"
        time.sleep(0.02)
    return int(path.read_text())


@pytest.mark.integration
@pytest.mark.parametrize(("ignore", "grace"), [("", "20"), (_DEAF, "0.3")], ids=["listens", "deaf"])
def test_cancelled_flow_leaves_no_process(tmp_path: Path, ignore: str, grace: str) -> None:
    command = [sys.executable, "-c", _FLOW, _STAGE, _CHILD.format(ignore=ignore), grace]
    flow = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPO)})
    child = _child(tmp_path, flow)
    assert os.getpgid(child) != os.getpgid(flow.pid)
    flow.send_signal(signal.SIGTERM)
    assert flow.wait(timeout=60) == 3
    deadline = time.monotonic() + 10
    while not _gone(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert _gone(child)


def test_stop_of_an_ended_group_is_fine() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], process_group=0)
    process.wait()
    stop_group(process.pid, 0.1)


def test_lines_are_logged_as_they_are_and_errors_carry_the_last(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(flows.commands, "get_run_logger", lambda: logging.getLogger("flow"))
    code = "import sys; print('10%\\r20%\\rdone %s'); print('why', file=sys.stderr); sys.exit(7)"
    with caplog.at_level(logging.INFO, "flow"), pytest.raises(CommandError) as failure:
        run_logged([sys.executable, "-c", code], "stage x")
    assert {"10%", "20%", "done %s", "why"} == {record.getMessage() for record in caplog.records}
    assert "stage x failed with exit code 7" in str(failure.value)
    assert "why" in str(failure.value)


def test_only_the_last_lines_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows.commands, "get_run_logger", lambda: logging.getLogger("flow"))
    with pytest.raises(CommandError) as failure:
        run_logged([sys.executable, "-c", "[print(f'line {n}.') for n in range(100)]; raise SystemExit(1)"], "stage")
    assert "line 99." in str(failure.value)
    assert "line 50." not in str(failure.value)
