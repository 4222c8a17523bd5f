"""The command `cliptune launch`: writes the file of a job from a template of infra/launch, and submits it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Annotated

import typer

from components.cli import templates
from components.cli.launching.node import command_of
from components.cli.tables import say
from components.core.system.discovery import FOLDER_NAME, choose
from components.core.system.errors import InputError
from components.core.system.project import in_project, require_project
from components.core.system.stage_graph import Graph, outdated, read_graph

TEMPLATES, FILES = Path("infra/launch"), Path("state/launch")


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
        submit: the command that submits a file; `{name}` is the job's name.
        follow: commands that show the job's state and lines.
    """

    template: str
    submit: Sequence[str]
    follow: str


SYSTEMS = {
    "slurm": System("slurm.sh", ("sbatch",), "squeue --me --name {name}, and tail -F state/launch/{name}-<number>.log"),
    "sky": System(
        "sky.yaml", ("sky", "launch", "--yes", "--down", "--detach-run", "--cluster", "{name}"), "sky logs {name}"
    ),
    # `apply` would start nothing where an earlier job of this name has ended; `create` says so.
    "trainjob": System("trainjob.yaml", ("kubectl", "create", "--filename"), "kubectl get trainjob/{name} --watch"),
}
HERE = "torchrun"


@in_project
def launch(
    stage: Annotated[str, typer.Argument(help="A stage of dvc.yaml, such as train@paraclip or compare.")],
    on: Annotated[str, typer.Option("--on", help="slurm, sky (SkyPilot), trainjob (Kubeflow Trainer) or torchrun.")],
    nodes: Annotated[int, typer.Option(min=1, help="Number of machines; embed and train@... take several.")] = 1,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of each machine.")] = 1,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Ranks on each machine; by default one for each GPU, at least one.")
    ] = None,
    accelerator: Annotated[str, typer.Option(help="SkyPilot's name of the GPU.")] = "H100",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the file; write and submit nothing.")] = False,
) -> None:
    """Write a job from a template of infra/launch, submit it, and print how to follow it.

    On one machine DVC runs the stage with all that it needs, on several the stage alone. All machines need this folder,
    or at least its data, models, state and .dvc, on a shared disk. A job that is preempted is queued again and resumes
    from its last checkpoint. Add a partition or an account to the template.

    Examples: cliptune launch train@paraclip --on slurm --nodes 2 --gpus 8 --dry-run; cliptune launch compare --on sky;
    cliptune launch train@paraclip --on trainjob --nodes 4 --gpus 8; cliptune launch embed --on torchrun --gpus 2
    """
    require_project()
    job = Job(stage, nodes, gpus, processes or max(1, gpus), accelerator)
    graph = check(job, on)
    if on == HERE:
        raise typer.Exit(0 if dry_run else run_here(job))
    text = rendered(job, on)
    say(text, nl=False)
    if dry_run:
        return
    check_now(job, graph)
    FILES.mkdir(parents=True, exist_ok=True)
    path = FILES / f"{job.name}{Path(SYSTEMS[on].template).suffix}"
    path.write_text(text, encoding="utf-8")
    say(f"wrote {path}", err=True)
    raise typer.Exit(submit(job, on, path))


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
    command = shlex.join([sys.executable, "-m", "components.cli.launching.node", job.stage])
    values = vars(job) | {"name": job.name, "command": command}
    return templates.rendered(TEMPLATES / f"{SYSTEMS[on].template}.j2", **values)


def submit(job: Job, on: str, path: Path) -> int:
    """Submit a file, and print how to follow the job; returns the exit code of the submission."""
    system = SYSTEMS[on]
    if which(system.submit[0]) is None:
        raise InputError(
            f"--on {on} needs the program {system.submit[0]}, which is not here: submit {path} where it is"
        )
    command = [*(word.format(name=job.name) for word in system.submit), str(path)]
    code = subprocess.run(command, check=False).returncode
    if not code:
        print(f"follow it: {system.follow.format(name=job.name)}")
    return code


def run_here(job: Job) -> int:
    """Run a stage's ranks on this machine; returns its exit code."""
    environment = os.environ | {"PET_NNODES": "1", "PET_NPROC_PER_NODE": str(job.processes)}
    command = [sys.executable, "-m", "components.cli.launching.node", job.stage]
    return subprocess.run(command, env=environment, check=False).returncode
