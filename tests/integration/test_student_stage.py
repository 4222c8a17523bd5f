"""The stage `students` as users run it: killed and restarted, and on two ranks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file

from components.captions.students import students as student
from components.captions.students.train import ADAPTER, RECORD
from components.core.system.processes import signal_group
from components.core.tracking import STORE, make_client
from tests.support.student_project import CAPTIONS, good
from tests.support.tiny_language_model import save_tiny_language_model

REPO = Path(__file__).parents[2]
SMALL = {"tasks": ["paraphrase_1"], "teacher": ["set.tsv"], "base": "base", "rank": 2, "batch_size": 4, "lr": 0.01}
PATIENCE = 800.0
TOLERANCE = 1e-5

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture
def projects(tmp_path: Path, raw_params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that makes projects with lessons and a base; they differ only in the settings of the test."""
    save_tiny_language_model(tmp_path / "base")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / STORE / 'mlflow.db'}")
    monkeypatch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    monkeypatch.chdir(tmp_path)
    make_client()

    def make(name: str, times: int = 2, **given: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "base").symlink_to(tmp_path / "base")
        rows = [f"{caption} again\t{good([caption])}" for caption in CAPTIONS * times]
        (folder / "set.tsv").write_text("\n".join(["caption\tparaphrase_1", *rows]) + "\n", encoding="utf-8")
        students = {"taught": SMALL | {"acceptance": 0} | given}
        (folder / "params.yaml").write_text(yaml.safe_dump(raw_params | {"students": students}), encoding="utf-8")
        return folder

    return make


@contextmanager
def _started(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The stage in `folder`; nothing of it is left after the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "components.captions.students.students"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        signal_group(process.pid, signal.SIGKILL)
        process.communicate()


def _train_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Train in this process; returns the student's folder."""
    monkeypatch.chdir(folder)
    student.main(None, student.OUTPUT, None, False)
    return folder / student.OUTPUT / "taught"


def _history(trained: Path, metric: str) -> list[tuple[int, float]]:
    run = json.loads((trained / RECORD).read_text("utf-8"))["mlflow_run"]
    return [(one.step, one.value) for one in make_client().get_metric_history(run, metric)]


def test_a_killed_run_resumes_and_ends_like_an_undisturbed_one(projects: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"times": 40, "epochs": 1, "checkpoint_every": 3}
    killed = projects("killed", **options)
    with _started(killed) as victim:
        end = time.monotonic() + PATIENCE
        while not any(killed.glob("state/students/taught/checkpoints-*/checkpoint-9")):
            assert victim.poll() is None, victim.stdout.read() if victim.stdout else ""
            assert time.monotonic() < end
            time.sleep(0.01)
        victim.kill()
        assert victim.wait() == -signal.SIGKILL
    assert not (killed / student.OUTPUT / "taught").exists()

    resumed = _train_here(killed, monkeypatch)
    whole = _train_here(projects("whole", **options), monkeypatch)
    (first, _), *_ = _history(resumed, "train/loss")
    assert first in (7, 10), "the checkpoint of step 9 may be half written"
    assert _history(resumed, "train/loss") == _history(whole, "train/loss")[first - 1 :]
    assert (resumed / ADAPTER).read_bytes() == (whole / ADAPTER).read_bytes()


def test_two_ranks_equal_one(projects: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_batches = {"epochs": 1, "held_out": 0.17}
    one = _train_here(projects("one", **whole_batches), monkeypatch)

    folder = projects("two", processes=2, micro_batch=1, **whole_batches)
    with _started(folder) as ranks:
        printed, _ = ranks.communicate(timeout=PATIENCE)
    assert ranks.returncode == 0, printed
    two = folder / student.OUTPUT / "taught"
    assert printed.count("held-out loss per token") == 1
    for metric in ("train/loss", "train/gradient_norm", "held_out/loss"):
        single, together = _history(one, metric), _history(two, metric)
        assert [step for step, _ in together] == [step for step, _ in single]
        assert [value for _, value in together] == pytest.approx([value for _, value in single], rel=TOLERANCE), metric
    assert load_file(two / ADAPTER).keys() == load_file(one / ADAPTER).keys()
    assert {path.name for path in two.parent.iterdir()} == {"taught"}
