"""Prompt tasks, one file each; a file's name is the task's name."""

from __future__ import annotations

import importlib
import pkgutil

from components.captions.task import PromptTask
from components.errors import InputError


def find_task(name: str) -> PromptTask:
    """The task in `tasks/<name>.py`.

    Raises:
        InputError: there is no such file; the message lists those that are.
    """
    known = sorted(module.name for module in pkgutil.iter_modules(__path__))
    if name not in known:
        raise InputError(f"params.yaml: synthesize.tasks.{name} is unknown: choose among {', '.join(known)}")
    task: PromptTask = importlib.import_module(f"{__name__}.{name}").TASK
    return task
