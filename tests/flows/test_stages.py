"""One stage: its logged lines and last ones, its processes, its GPUs, and the locks of real DVC."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
import yaml

import flows.commands
from components.core.system.processes import CommandError
from components.core.system.stage_graph import outdated, read_graph
from flows import stages
from flows.commands import run_supervised
from flows.stages import own_gpus
from tests.support.dvc_project import REPO, make_project, ran
from tests.support.waiting import runs

# A stage as DVC runs it: a command whose child does the work; the child ignores SIGTERM.
_CHILD = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open('child', 'w').write(str(os.getpid()))
time.sleep(120)
"""
_STAGE = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
_ONE_FLOW = """
import logging, pathlib, signal, sys
import flows.commands as commands
commands.get_run_logger = lambda: logging.getLogger("flow")
commands.GRACE_S = 0.3
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
commands.run_supervised([sys.executable, "-c", *sys.argv[1:]], "stage", folder=pathlib.Path())
"""


@pytest.mark.integration
def test_a_cancelled_flow_leaves_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _ONE_FLOW, _STAGE, _CHILD]
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
        run_supervised(command, "stage x", folder=tmp_path)
    assert [record.getMessage() for record in caplog.records][:4] == ["10%", "20%", "done %s", "line 0."]
    command[-1] += "; print('why', file=sys.stderr); sys.exit(7)"
    with pytest.raises(CommandError, match=r"stage x failed with exit code 7(.|\n)*why") as failure:
        run_supervised(command, "stage x", folder=tmp_path)
    assert "line 99." in str(failure.value)
    assert "line 50." not in str(failure.value)


def test_no_more_stages_at_once_than_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with own_gpus("train@a", 1) as devices:
        assert devices == {}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    for _ in range(2):
        with own_gpus("train@a", 8) as both:
            assert both == {"CUDA_VISIBLE_DEVICES": "3,5"}
    third = threading.Event()

    def wait() -> None:
        with own_gpus("evaluate@c", 8) as free:
            assert free == {"CUDA_VISIBLE_DEVICES": "5"}
            third.set()

    with own_gpus("train@a", 1) as one:
        with own_gpus("train@b", 1) as two:
            assert [*one.values(), *two.values()] == ["3", "5"]
            thread = threading.Thread(target=wait)
            thread.start()
            with own_gpus("compare", 1) as none:
                assert none == {}
            assert not third.wait(2)
        assert third.wait(60)
    thread.join()


# Larger than any process number.
NOBODY = 2**22 + 1


def _hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once, and log outside a flow."""
    monkeypatch.setattr(stages, "PAUSE", 0.0)
    monkeypatch.setattr(stages, "get_run_logger", lambda: logging.getLogger("flow"))


def _locked_by(folder: Path, number: int) -> None:
    lock = {"write": {str(folder / "out" / "prepare.txt"): {"pid": number, "cmd": "dvc repro prepare"}}}
    (folder / ".dvc" / "tmp" / "rwlock").write_text(json.dumps(lock))


def _repro() -> None:
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", "--single-item", "prepare"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandError(done.stderr)


@pytest.mark.integration
def test_a_lock_for_ever_ends_the_stage_a_dead_ones_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _hasten(monkeypatch)
    make_project(tmp_path, {"prepare": []}, seconds=0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".dvc" / "tmp").mkdir(exist_ok=True)
    fix = r"remove \.dvc/tmp/rwlock .*again$"
    (tmp_path / ".dvc" / "tmp" / "rwlock").write_text('{"read": {}, "wri')
    with pytest.raises(CommandError, match=rf"^error: .*half written.*: {fix}"):
        stages.when_free(_repro, "stage prepare")
    # The number of the dead process now belongs to this one.
    _locked_by(tmp_path, os.getpid())
    with pytest.raises(CommandError, match=rf"^error: .*process {os.getpid()}, .*: {fix}"):
        stages.when_free(_repro, "stage prepare")
    _locked_by(tmp_path, NOBODY)
    stages.when_free(_repro, "stage prepare")
    assert ran(tmp_path) == ["prepare"]


def test_a_stage_waits_for_another_dvc_but_not_after_another_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    _hasten(monkeypatch)
    tries: list[int] = []
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()", "dvc"], stdin=subprocess.PIPE
    ) as other:

        def work() -> None:
            tries.append(1)
            if len(tries) < 4:
                raise CommandError(f"'a' is busy, it is being blocked by:\n  (PID {other.pid}): dvc repro a")

        stages.when_free(work, "stage a")
    assert len(tries) == 4

    def fail() -> None:
        raise CommandError("stage a failed")

    with pytest.raises(CommandError, match=r"^stage a failed$"):
        stages.when_free(fail, "stage a")


METHODS = ("a", "b", "c", "d")
STAGES = {
    "prepare": [],
    **{f"train@{name}": ["prepare"] for name in METHODS},
    **{f"evaluate@{name}": [f"train@{name}"] for name in METHODS},
    "compare": [f"evaluate@{name}" for name in METHODS],
}
FLOW = """
from prefect import flow
import flows.stages
from flows.pipeline import bring_up_to_date
flows.stages.PAUSE = 0.5
flow(name="both")(bring_up_to_date)(["compare"])
"""


@pytest.mark.integration
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("prefect_server")
def test_two_flows_bring_the_same_pipeline_up_to_date_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings import PREFECT_API_URL

    make_project(tmp_path, STAGES, seconds=1.0)
    monkeypatch.chdir(tmp_path)
    graph = read_graph()
    assert set(graph.upstream(["compare"])) == set(STAGES)
    environment = {**os.environ, "PYTHONPATH": str(REPO), "PREFECT_API_URL": str(PREFECT_API_URL.value())}
    command = [sys.executable, "-c", FLOW]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    two = [subprocess.Popen(command, env=environment, text=True, **pipes) for _ in range(2)]
    output = [flow.communicate(timeout=1500)[0] for flow in two]
    assert [flow.returncode for flow in two] == [0, 0], "\n".join(output)
    assert Counter(ran(tmp_path)) == dict.fromkeys(STAGES, 1)
    assert set(yaml.safe_load((tmp_path / "dvc.lock").read_text())["stages"]) == set(STAGES)
    assert outdated(graph, graph.upstream(["compare"])) == set()
    (tmp_path / "out" / "train@b.txt").unlink()
    assert outdated(graph, graph.upstream(["compare"])) == {"train@b", "evaluate@b", "compare"}
