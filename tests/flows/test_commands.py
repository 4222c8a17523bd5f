"""The lines of a flow's command are logged, its errors carry the last ones, and a cancelled flow leaves no process."""

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
from components.core.system.processes import CommandError
from flows.commands import run_supervised
from tests.support.waiting import runs

REPO = Path(__file__).parents[2]
# A stage as DVC runs it: a command whose child does the work; the child ignores SIGTERM.
_CHILD = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open('child', 'w').write(str(os.getpid()))
time.sleep(120)
"""
_STAGE = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
_FLOW = """
import logging, pathlib, signal, sys
import flows.commands as commands
commands.get_run_logger = lambda: logging.getLogger("flow")
commands.GRACE_S = 0.3
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
commands.run_supervised([sys.executable, "-c", *sys.argv[1:]], "stage", folder=pathlib.Path())
"""


@pytest.mark.integration
def test_a_cancelled_flow_leaves_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _FLOW, _STAGE, _CHILD]
    flow = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPO)})
    path = tmp_path / "child"
    while not path.exists() or not path.read_text():
        assert flow.poll() is None, "the flow ended before its stage began"
        time.sleep(0.02)
    child = psutil.Process(int(path.read_text()))
    assert os.getpgid(child.pid) != os.getpgid(flow.pid)
    flow.send_signal(signal.SIGTERM)
    assert flow.wait(timeout=60) == 3
    assert not runs(child)


def test_lines_are_logged_and_errors_carry_the_last(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(flows.commands, "get_run_logger", lambda: logging.getLogger("flow"))
    code = "import sys; print('10%\\r20%\\rdone %s'); [print(f'line {n}.') for n in range(100)]"
    command = [sys.executable, "-c", code]
    with caplog.at_level(logging.INFO, "flow"):
        assert run_supervised(command, "stage x", folder=tmp_path) == "line 99."
    assert [record.getMessage() for record in caplog.records][:4] == ["10%", "20%", "done %s", "line 0."]
    command[-1] += "; print('why', file=sys.stderr); sys.exit(7)"
    with pytest.raises(CommandError, match=r"stage x failed with exit code 7(.|\n)*why") as failure:
        run_supervised(command, "stage x", folder=tmp_path)
    assert "line 99." in str(failure.value)
    assert "line 50." not in str(failure.value)
