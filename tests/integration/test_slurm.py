"""A stage on two machines of a real Slurm is preempted, goes on from its checkpoint, and gives what DVC alone gives."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.params import REPO, every_method
from tests.support.ports import free_ports
from tests.support.stage_project import make_trainable, write_params

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("slurmctld") is None or os.geteuid() != 0, reason="needs root and Debian's slurmctld and slurmd"
    ),
]
ENTRY = {"method": "conclip", "train_data": "data/validated", "batch_size": 16, "epochs": 20, "lr": 0.001}
WEIGHTS = "models/tried/encoder.safetensors"
HOST, SECOND = socket.gethostname(), "zz-second"
"""The ranks meet at the first of the sorted names, so this must be one that there is."""
CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName={host},{second} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]},{ports[2]} CPUs=1
PartitionName=all Nodes=ALL Default=YES State=UP PriorityTier=1 GraceTime=30
PartitionName=urgent Nodes=ALL State=UP PriorityTier=10 PreemptMode=OFF
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A controller and two machines on 127.0.0.1, which the programs of Slurm find by SLURM_CONF."""
    folder = tmp_path / "slurm"
    for name in ("state", HOST, SECOND):
        (folder / name).mkdir(parents=True)
    config = CONFIG.format(host=HOST, second=SECOND, ports=free_ports(3), folder=folder)
    (folder / "slurm.conf").write_text(config)
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    with (folder / "log").open("wb") as log:
        commands = [["slurmctld", "-D", "-c"], *(["slurmd", "-D", "-N", node] for node in (HOST, SECOND))]
        started = [subprocess.Popen(command, stdout=log, stderr=log) for command in commands]
    try:
        _until(lambda: "idle" in _said("sinfo", "--noheader", "--format=%T"), 60, (folder / "log").read_text)
        yield
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


def _until(holds: Callable[[], bool], seconds: float, why: Callable[[], str]) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, why()
        time.sleep(0.2)


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _project(folder: Path) -> Path:
    make_trainable(folder)
    train = {"checkpoint_dir": "state/train", "validation_images": 0, "checkpoint_every": 4}
    raw = every_method() | {"methods": {"tried": ENTRY | {"warmup_steps": 1}}, "compare_encoders": ["base"]}
    write_params(folder, raw | {"train": train | {"precision": "fp32", "processes": 2}})
    command = 'python -m components.training.train --method "$DVC_STAGE"'
    stage = {"cmd": command, "deps": ["data", "models/base"], "outs": [WEIGHTS.replace("tried", "${key}")]}
    pipeline = {"stages": {"train": {"foreach": {"tried": {}}, "do": stage}}}
    (folder / "dvc.yaml").write_text(yaml.safe_dump(pipeline))
    shutil.copytree(REPO / "infra" / "launch", folder / "infra" / "launch")
    (folder / ".gitignore").write_text("/data\n/models\n/state\n")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    (folder / ".dvc").mkdir()
    (folder / ".dvc" / "config").touch()
    return folder


def _stored(project: Path) -> str:
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    return str(lock["stages"]["train@tried"]["outs"][0]["md5"])


@pytest.mark.usefixtures("slurm")
def test_a_preempted_job_goes_on_and_stores_what_dvc_would_have_made(tmp_path: Path) -> None:
    alone, launched = _project(tmp_path / "alone"), _project(tmp_path / "launched")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1", "PATH": path, "PYTHON": sys.executable}
    sent = ["sbatch", "--nodes", "2", "infra/launch/slurm.sh", "train@tried"]
    printed = subprocess.run(sent, cwd=launched, env=environment, capture_output=True, text=True, check=True).stdout
    number = re.search(r"Submitted batch job (\d+)", printed)
    assert number is not None
    log = launched / "state" / f"cliptune-{number[1]}.log"

    def said() -> str:
        return (tmp_path / "slurm" / "log").read_text()[-3000:] + (log.read_text() if log.is_file() else "")

    _until(lambda: any((launched / "state" / "train").rglob("step-*")), 120, said)
    # A job of a better partition takes both machines.
    subprocess.run(["srun", "--partition=urgent", "--nodes=2", "true"], check=True, timeout=120)
    _until(lambda: "PENDING" in _said("squeue", "--noheader", "--format=%T"), 60, said)
    # Slurm would wait two minutes. Started at once, the job has failed without a line of output.
    subprocess.run(["scontrol", "update", f"JobId={number[1]}", "StartTime=now+5"], check=True)
    _until(lambda: "JobState=COMPLETED" in _said("scontrol", "show", "job", number[1]), 300, said)
    assert "Restarts=1" in _said("scontrol", "show", "job", number[1]), said()
    begun = [int(samples) for samples in re.findall(r"(\d+)/2240 \[00:00<\?", said())]
    assert begun[0] == 0, begun
    assert begun[1] > 0, begun
    dvc = [sys.executable, "-m", "dvc", "repro", "--quiet", "train@tried"]
    subprocess.run(dvc, cwd=alone, env=environment, check=True)
    assert _stored(launched) == _stored(alone)
    # Nothing is left to do.
    command = [sys.executable, "-m", "components.cli.node", "train@tried"]
    second = environment | {"PET_NNODES": "2"}
    again = subprocess.run(command, cwd=launched, env=second, capture_output=True, check=False)
    assert b"stage 'train@tried' is up to date: there is nothing to run" in again.stderr
