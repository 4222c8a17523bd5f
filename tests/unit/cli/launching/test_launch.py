"""Files of jobs are valid for their schedulers, and each machine runs its part."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob

from components.cli.launching import launch
from components.cli.launching.launch import Job, rendered
from components.cli.launching.node import command_of
from components.core.system.errors import InputError
from components.core.system.stage_graph import DVC
from tests.support.dvc_project import REPO, make_project
from tests.support.typed import cliptune

STAGE = "train@paraclip"


@pytest.mark.parametrize("gpus", [0, 8])
def test_each_scheduler_takes_its_file(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)
    job = Job(STAGE, 2, gpus, max(1, gpus), "H100")
    sky, trainjob = (yaml.safe_load(rendered(job, on)) for on in ("sky", "trainjob"))
    assert (sky["name"], sky["num_nodes"]) == ("cliptune-train-paraclip", 2)
    assert sky["resources"] == ({"accelerators": "H100:8"} if gpus else {"cpus": "1+"})
    assert "-m components.cli.launching.node train@paraclip" in sky["run"]
    # The schema of SkyPilot's tasks has these keys and allows no others; its package would bring a server.
    assert set(sky) <= {"name", "workdir", "num_nodes", "resources", "file_mounts", "setup", "run", "envs", "secrets"}
    found = TrainerV1alpha1TrainJob.from_dict(trainjob)
    assert found is not None
    assert found.spec is not None
    assert found.spec.trainer is not None
    assert (found.spec.trainer.num_nodes, found.spec.trainer.num_proc_per_node) == (2, max(1, gpus))
    # A key that the schema does not have would be dropped.
    assert found.to_dict()["spec"] == trainjob["spec"]
    slurm = rendered(job, "slurm")
    assert ("--gpus-per-node=8" in slurm) == bool(gpus)
    assert "#SBATCH --nodes=2" in slurm


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
def test_a_stopped_job_is_queued_again(
    preempted: bool, status: int, state: str, requeued: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPO)
    script = rendered(Job(STAGE, 2, 0, 1, None), "slurm")
    step = f"trap 'exit {status}' TERM; touch begun; for _ in $(seq 300); do sleep 0.1; done"
    commands = {"srun": step if preempted else f"exit {status}", "squeue": f"echo {state}"}
    commands["scontrol"] = 'test "$1" != requeue || touch requeued; echo here'
    for name, lines in commands.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{lines}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "here"}
    with subprocess.Popen(["bash", "-c", script], cwd=tmp_path, env=environment) as job:
        if preempted:
            while not (tmp_path / "begun").exists():
                time.sleep(0.01)
            job.terminate()
        assert job.wait(30) == status
    assert (tmp_path / "requeued").exists() == requeued


@pytest.mark.parametrize("code", [0, 3])
def test_a_submitted_job_is_followed_with_its_schedulers_commands(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("sbatch", "sky", "kubectl"):
        (tmp_path / name).write_text(f'#!/bin/bash\necho "{name} $*"\nexit {code}\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    job, said = Job("compare", 1, 0, 1, "H100"), list[str]()
    for on in launch.SYSTEMS:
        assert launch.submit(job, on, Path("file")) == code
        said += capfd.readouterr().out.splitlines()
    submitted = ["sbatch file", "sky launch --yes --down --detach-run --cluster cliptune-compare file"]
    submitted.append("kubectl create --filename file")
    follow = [
        "follow it: squeue --me --name cliptune-compare, and tail -F state/launch/cliptune-compare-<number>.log",
        "follow it: sky logs cliptune-compare",
        "follow it: kubectl get trainjob/cliptune-compare --watch",
    ]
    assert sorted(said) == sorted([*submitted, *(follow if code == 0 else [])])


def test_a_job_of_a_name_that_is_there_is_not_taken_for_a_new_one() -> None:
    assert launch.SYSTEMS["trainjob"].submit[:2] == ("kubectl", "create")


def test_the_first_machine_runs_dvc_and_the_others_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)
    assert command_of("compare", 0, 1) == [*DVC, "repro", "compare"]
    assert command_of(STAGE, 0, 2) == [*DVC, "repro", "--single-item", "--no-run-cache", STAGE]
    assert command_of(STAGE, 1, 2) == [sys.executable, "-m", "components.training.train", "--method", "paraclip"]
    assert command_of("embed", 1, 2) == [sys.executable, "-m", "components.encoders.embed"]
    with pytest.raises(InputError, match="stage 'compare' computes on one machine: give --nodes 1; embed and train"):
        command_of("compare", 0, 2)


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The message of a launch that is refused, in a project whose stages never ran."""
    make_project(tmp_path, {"embed": [], "train@a": ["embed"], "compare": ["train@a"]})
    (tmp_path / "infra").symlink_to(REPO / "infra")
    monkeypatch.chdir(tmp_path)

    def message(*arguments: str) -> str:
        shown = cliptune("launch", *arguments, code=1)
        assert not Path("state").exists() or not list(Path("state").rglob("*.sh"))
        return shown

    return message


def test_what_cannot_start_is_refused(refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for arguments, words in (
        (("train@a", "--on", "slrm"), "--on 'slrm' is unknown: did you mean 'slurm'?"),
        (("train@b", "--on", "slurm"), "dvc.yaml has no stage 'train@b'"),
        (("train@a", "--on", "slurm", "--nodes", "2"), "stage 'train@a' needs embed, which is out of date"),
        (("embed", "--on", "torchrun", "--nodes", "2"), "--on torchrun starts ranks on this machine"),
        (("compare", "--on", "slurm", "--nodes", "2"), "stage 'compare' computes on one machine"),
        (("compare", "--on", "sky"), "--on sky needs the program sky, which is not here: submit state/launch/"),
    ):
        assert words in refused(*arguments)
    assert "exec " in cliptune("launch", "embed", "--on", "slurm", "--nodes", "2", "--gpus", "0", "--dry-run")
    assert not Path("state/launch/cliptune-embed.sh").exists()
