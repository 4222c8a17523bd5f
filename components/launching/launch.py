"""Writes the file of a job from a template of infra/launch, submits it, and follows it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from components.core.system import templates
from components.core.system.discovery import FOLDER_NAME, choose
from components.core.system.errors import InputError
from components.core.system.stage_graph import Graph, outdated, read_graph
from components.launching.node import command_of

TEMPLATES, FILES = Path("infra/launch"), Path("state/launch")
_POLL_S = 2.0
_UNKNOWN = 30
"""Checks in a row without an answer of Slurm, after which a job is given up."""
_SLURM_GOES_ON = ("PENDING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED", "CONFIGURING")


@dataclass(frozen=True)
class Job:
    """One stage on some machines.

    Attributes:
        gpus: of each machine; 0 for processors alone.
        processes: ranks on each machine.
    """

    stage: str
    nodes: int
    gpus: int
    processes: int
    accelerator: str

    @property
    def name(self) -> str:
        """A name that every scheduler takes."""
        return re.sub(r"[^a-z0-9]+", "-", f"cliptune-{self.stage}".lower()).strip("-")


@dataclass(frozen=True)
class System:
    """A scheduler.

    Attributes:
        template: name of the job's file, and with `.j2` of its template in infra/launch.
        submit: the command that submits a file.
        follow: shows the job of a submission until it ends; returns its exit code.
    """

    template: str
    submit: Sequence[str]
    follow: Callable[[Job, str], int]


def _follow_slurm(job: Job, submitted: str) -> int:
    number, shown, unknown = submitted.partition(";")[0].strip(), 0, 0
    log = FILES / f"{job.name}-{number}.log"
    while True:
        state = _slurm_state(number)
        if log.is_file():
            with log.open("rb") as stream:
                stream.seek(shown)
                text = stream.read()
            shown += len(text)
            sys.stdout.write(text.decode(errors="replace"))
            sys.stdout.flush()
        unknown = 0 if state else unknown + 1
        if (state and state not in _SLURM_GOES_ON) or unknown == _UNKNOWN:
            print(f"job {number}: {state or 'is not known any more'}")
            return 0 if state == "COMPLETED" else 1
        time.sleep(_POLL_S)


def _slurm_state(number: str) -> str:
    """The state of a job; empty if neither the controller, which forgets ended jobs, nor the accounting answers."""
    accounting = ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={number}", "--format=State"]
    for command, state in ((["scontrol", "show", "job", number], r"JobState=(\S+)"), (accounting, r"(\w+)")):
        with suppress(InputError, FileNotFoundError):
            if found := re.search(state, _said(command)):
                return found[1]
    return ""


def _follow_trainjob(job: Job, _submitted: str) -> int:
    return subprocess.run(["kubectl", "get", f"trainjob/{job.name}", "--watch"], check=False).returncode


SYSTEMS = {
    "slurm": System("slurm.sh", ("sbatch", "--parsable"), _follow_slurm),
    # SkyPilot shows the job's lines itself, and returns its exit code.
    "sky": System("sky.yaml", ("sky", "launch", "--yes", "--down"), lambda _job, _submitted: 0),
    # `apply` would start nothing where an earlier job of this name has ended; `create` says so.
    "trainjob": System("trainjob.yaml", ("kubectl", "create", "--filename"), _follow_trainjob),
}
HERE = "torchrun"


def check(job: Job, on: str) -> Graph:
    """The project's stages; raises InputError for an unknown scheduler or stage, or too many machines for a stage."""
    choose([*SYSTEMS, HERE], on, "--on")
    group, _, entry = job.stage.partition("@")
    if not all(FOLDER_NAME.fullmatch(name) for name in (group, entry or group, job.accelerator)):
        raise InputError(f"stage {job.stage!r} on {job.accelerator!r}: names have only A-Z, a-z, 0-9, _, - and .")
    command_of(job.stage, 0, job.nodes)
    graph = read_graph()
    if job.stage not in graph.needs:
        raise InputError(f"dvc.yaml has no stage '{job.stage}': `cliptune plan` lists them")
    if job.nodes > 1 and on == HERE:
        raise InputError("--on torchrun starts ranks on this machine: give --nodes 1, or a scheduler")
    return graph


def check_now(job: Job, graph: Graph) -> None:
    """Raise InputError for a stage of several machines that is up to date, or needs a stage that is not."""
    if job.nodes > 1:
        old = outdated(graph, graph.upstream([job.stage]))
        if first := sorted(old - {job.stage}):
            raise InputError(f"stage '{job.stage}' needs {first[0]}, which is out of date: launch that first")
        if not old:
            raise InputError(f"stage '{job.stage}' is up to date: there is nothing to launch")


def rendered(job: Job, on: str) -> str:
    """The file of a job."""
    command = shlex.join([sys.executable, "-m", "components.launching.node", job.stage])
    values = vars(job) | {"name": job.name, "command": command}
    return templates.rendered(TEMPLATES / f"{SYSTEMS[on].template}.j2", **values)


def write(job: Job, on: str) -> Path:
    """Write the file of a job; returns its path."""
    FILES.mkdir(parents=True, exist_ok=True)
    path = FILES / f"{job.name}{Path(SYSTEMS[on].template).suffix}"
    path.write_text(rendered(job, on), encoding="utf-8")
    return path


def submit(job: Job, on: str, path: Path, *, follow: bool) -> int:
    """Submit a file, and follow the job to its end; returns its exit code."""
    system = SYSTEMS[on]
    if which(system.submit[0]) is None:
        raise InputError(
            f"--on {on} needs the program {system.submit[0]}, which is not here: submit {path} where it is"
        )
    if on == "sky":
        return subprocess.run([*system.submit, "--cluster", job.name, str(path)], check=False).returncode
    submitted = _said([*system.submit, str(path)])
    print(f"submitted: {submitted.strip()}")
    return system.follow(job, submitted) if follow else 0


def run_here(job: Job) -> int:
    """Run a stage's ranks on this machine; returns its exit code."""
    environment = os.environ | {"PET_NNODES": "1", "PET_NPROC_PER_NODE": str(job.processes)}
    command = [sys.executable, "-m", "components.launching.node", job.stage]
    return subprocess.run(command, env=environment, check=False).returncode


def _said(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"`{' '.join(command)}` failed: {' '.join(done.stderr.split())}")
    return done.stdout
