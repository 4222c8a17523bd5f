"""Prompt tasks, one file each; a file's name is the task's name."""

from __future__ import annotations

from components.captions.prompting.task import PromptTask
from components.core.system.discovery import file_names, find


def find_task(name: str) -> PromptTask:
    """The task in `tasks/<name>.py`."""
    task: PromptTask = find(__name__, file_names(__path__), name, "TASK", "params.yaml: synthesize.tasks has")
    return task
