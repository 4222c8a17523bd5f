"""The command `cliptune launch`, which starts a stage where a scheduler runs it."""

from __future__ import annotations

from typing import Annotated

import typer

from components.cli.tables import say
from components.core.system.project import in_project, require_project


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
    from components.cli.launching.launch import HERE, Job, check, check_now, rendered, run_here, submit, write

    require_project()
    job = Job(stage, nodes, gpus, processes or max(1, gpus), accelerator)
    graph = check(job, on)
    if on == HERE:
        raise typer.Exit(0 if dry_run else run_here(job))
    say(rendered(job, on), nl=False)
    if dry_run:
        return
    check_now(job, graph)
    path = write(job, on)
    say(f"wrote {path}", err=True)
    raise typer.Exit(submit(job, on, path))
