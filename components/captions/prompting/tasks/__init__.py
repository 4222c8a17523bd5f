"""Prompt tasks: a file of a task's name has it as `TASK`, a file of a paper or a subject has several as `TASKS`."""

from __future__ import annotations

import importlib

from components.captions.prompting.task import PromptTask
from components.core.system.discovery import choose, modules_by_name


def find_task(name: str) -> PromptTask:
    """The task with this name."""
    files = modules_by_name(__path__)
    file = files[choose(sorted(files), name, "params.yaml: synthesize.tasks has")]
    module = importlib.import_module(f"{__name__}.{file}")
    tasks: tuple[PromptTask, ...] = getattr(module, "TASKS", None) or (module.TASK,)
    return next((task for task in tasks if task.name == name), tasks[0])
