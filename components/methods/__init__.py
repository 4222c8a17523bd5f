"""Fine-tuning methods, one file each; a file's name is the method's name and its key in params.yaml."""

from __future__ import annotations

from components.discovery import file_names, find
from components.methods.method import Method


def method_names() -> list[str]:
    """The names of all methods, sorted."""
    return file_names(__path__, skip=("method",))


def find_method(name: str) -> Method:
    """The method in `methods/<name>.py`.

    Raises:
        InputError: there is no such file; the message lists those that are.
    """
    method: Method = find(__name__, method_names(), name, "METHOD", "method")
    return method
