"""Stage `students`: trains language models on a teacher's answers, each as a LoRA adapter.

ParaCLIP (section 2.1) instruction-tuned a local LLM on a stronger model's paraphrases and had it write the rest.
`lessons` has lessons, a model as teacher, and acceptance; `train` has the training and the record.

torchrun --nproc-per-node 8 -m components.captions.students.students --student paraclip
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from components.core.settings import Settings
from components.core.system.checking import load_checked
from components.core.system.errors import InputError
from components.core.system.profiles import settings_with
from components.core.system.project import from_root, in_project, start

OUTPUT = Path("models/students")


@in_project
def main(
    student: Annotated[list[str] | None, typer.Option(help="A key of `students`; all when not given.")] = None,
    output: Annotated[Path, typer.Option(help="Folder of the students' folders.")] = OUTPUT,
    profile: Annotated[str | None, typer.Option(help="Profile to apply over params.yaml, without writing it.")] = None,
    lessons_only: Annotated[bool, typer.Option("--lessons-only", help="Generate the lessons; train nothing.")] = False,
) -> None:
    """Train the students of params.yaml, or one of them.

    Example: python -m components.captions.students.students --student paraclip
    """
    settings = load_checked(entries=()) if profile is None else settings_with(profile)
    names, place = student or list(settings.students), from_root(output, OUTPUT)
    if place == OUTPUT:
        # The stage's output, also without any student.
        place.mkdir(parents=True, exist_ok=True)
    if names:
        options = ["--output", str(place), *(["--profile", profile] if profile else [])]
        _train(settings, names, place, options, lessons_only=lessons_only)


def _train(
    settings: Settings, names: Sequence[str], output: Path, options: Sequence[str], *, lessons_only: bool
) -> None:
    """Train students here or, those with several processes, under torchrun; `options` are this command's."""
    from components.captions.students.lessons import ask_teacher
    from components.captions.students.train import find_job, find_student
    from components.core.compute.distributed import become_torchrun, launched_by_torchrun

    if launched_by_torchrun():
        run(settings, names, output)
        return
    for name in names:
        if isinstance(find_student(settings, name).teacher, str):
            ask_teacher(settings, name, settings.students[name])
    if lessons_only:
        return
    jobs = {name: find_job(settings, name, output) for name in names}
    together = {name: job for name, job in jobs.items() if job.student.processes > 1 and not job.is_done()}
    run(settings, [name for name in jobs if name not in together], output)
    if together:
        processes = {job.student.processes for job in together.values()}
        if len(processes) > 1:
            raise InputError(
                f"params.yaml: students {', '.join(together)} have different `processes`: give all the same number, or "
                "train them one by one with --student"
            )
        chosen = [part for name in together for part in ("--student", name)]
        become_torchrun(processes.pop(), ["-m", __spec__.name, *chosen, *options])


def run(settings: Settings, names: Sequence[str], output: Path = OUTPUT) -> None:
    """Train students on the ranks of this process's world, except those that are already trained."""
    from components.captions.students.train import find_job, train
    from components.core.compute.devices import pick_device
    from components.core.compute.distributed import join_world

    with join_world(pick_device(settings.device)) as (world, device):
        for name in names:
            train(settings, find_job(settings, name, output), world, device)


if __name__ == "__main__":
    start(main)
