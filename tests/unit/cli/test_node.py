"""Each machine of a job runs its part, and a job that is stopped is queued again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from components.cli.node import command_of
from components.core.system.errors import InputError
from components.core.system.stage_graph import DVC
from tests.support.dvc_project import REPO, make_project
from tests.support.waiting import wait_until

SLURM = REPO / "infra" / "launch" / "slurm.sh"

WORK = """
import signal, time
from pathlib import Path

def save(*_):
    while not Path("may_end").exists():
        time.sleep(0.1)
    Path("saved").touch()
    raise SystemExit(1)

signal.signal(signal.SIGTERM, save)
again = Path("begun").exists()
Path("begun").touch()
while not again:
    time.sleep(0.1)
Path("out/embed.txt").write_text("after saved" if Path("saved").exists() else "before")
"""


def _programs(folder: Path, **lines: str) -> dict[str, str]:
    """Programs of these lines; returns a job's environment that finds them."""
    for name, line in lines.items():
        (folder / name).write_text(f"#!/bin/bash\n{line}\n")
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin", "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "here"}


def test_skypilot_takes_its_file() -> None:
    """The schema of SkyPilot's tasks has these keys and allows no others; its package would bring a server."""
    sky = yaml.safe_load((REPO / "infra" / "launch" / "sky.yaml").read_text("utf-8"))
    assert set(sky) <= {"name", "workdir", "num_nodes", "resources", "file_mounts", "setup", "run", "envs", "secrets"}
    assert '-m components.cli.node "$STAGE"' in sky["run"]


@pytest.mark.parametrize(
    ("preempted", "status", "state", "requeued"),
    [
        (True, 143, "RUNNING", True),
        # One machine ended before the other.
        (True, 137, "RUNNING", True),
        (False, 143, "RUNNING", True),
        # It needed too much memory.
        (False, 137, "RUNNING", False),
        (True, 0, "RUNNING", False),
        (True, 143, "CANCELLED", False),
    ],
)
def test_a_stopped_job_queues_again(preempted: bool, status: int, state: str, requeued: bool, tmp_path: Path) -> None:
    step = f"trap 'exit {status}' TERM; touch begun; for _ in $(seq 300); do sleep 0.1; done"
    environment = _programs(
        tmp_path,
        srun=step if preempted else f"exit {status}",
        squeue=f"echo {state}",
        scontrol='test "$1" != requeue || touch requeued; echo here',
    )
    with subprocess.Popen(["bash", str(SLURM), "train@a"], cwd=tmp_path, env=environment) as job:
        if preempted:
            while not (tmp_path / "begun").exists():
                time.sleep(0.01)
            job.terminate()
        assert job.wait(30) == status
    assert (tmp_path / "requeued").exists() == requeued


@pytest.mark.parametrize(("given", "ranks"), [({"SLURM_GPUS_PER_NODE": "h100:8"}, 8), ({"RANKS": "2"}, 2), ({}, 1)])
def test_a_machine_has_its_ranks_and_runs_no_part_of_a_name(given: dict[str, str], ranks: int, tmp_path: Path) -> None:
    echo = 'echo "$PET_NPROC_PER_NODE $PET_NODE_RANK $*"'
    environment = _programs(tmp_path, srun='shift\nexec "$@"', python=echo, scontrol="echo here") | given
    environment |= {"PYTHON": "python", "SLURM_NNODES": "2", "SLURM_NODEID": "1"}
    job = ["bash", str(SLURM), "train@`touch MARK`; $(touch MARK)"]
    done = subprocess.run(job, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{ranks} 1 -m components.cli.node {job[-1]}\n"
    assert not (tmp_path / "MARK").exists()


def test_the_first_machine_runs_dvc_and_the_others_the_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)
    stage, alone = "train@paraclip", ("--single-item", "--no-run-cache")
    assert command_of("compare", 0, 1) == [*DVC, "--wait-for-lock", "repro", "compare"]
    assert command_of(stage, 1, 2) == [sys.executable, "-m", "components.training.train", "--method", "paraclip"]
    assert command_of("embed", 1, 2) == [sys.executable, "-m", "components.encoders.embed"]
    with pytest.raises(InputError, match="stage 'compare' computes on one machine: start one; embed and train"):
        command_of("compare", 0, 2)
    make_project(tmp_path, {"embed": [], "train@a": ["embed"]})
    monkeypatch.chdir(tmp_path)
    assert command_of("embed", 0, 2) == [*DVC, "--wait-for-lock", "repro", *alone, "embed"]
    with pytest.raises(InputError, match="stage 'train@a' needs embed, which is out of date"):
        command_of("train@a", 0, 2)
    with pytest.raises(InputError, match=r"dvc\.yaml has no stage 'train@b'"):
        command_of("train@b", 0, 2)


def test_a_job_that_starts_again_waits_until_its_killed_stage_has_saved_its_state(tmp_path: Path) -> None:
    make_project(tmp_path, {"embed": []})
    (tmp_path / "work.py").write_text(WORK)
    command, environment = (
        [sys.executable, "-m", "components.cli.node", "embed"],
        os.environ | {"PYTHONPATH": str(REPO)},
    )
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as first:
        wait_until((tmp_path / "begun").is_file, 60)
        first.kill()
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as again:
        assert again.stdout is not None
        assert again.stdout.readline() == "embed-0: waiting until the processes of an earlier start have ended\n"
        (tmp_path / "may_end").touch()
        assert again.wait(120) == 0
    assert (tmp_path / "out" / "embed.txt").read_text() == "after saved"
