"""Finds a method by its name, which is the name of its file."""

from __future__ import annotations

from components import methods
from components.core.discovery import file_names, find
from components.methods.contract.method import Method


def method_names() -> list[str]:
    """The names of all methods, sorted."""
    return file_names(methods.__path__, skip=("check_entries", "contract", "registry"))


def find_method(name: str) -> Method:
    """The method in `methods/<name>.py`.

    Raises:
        InputError: there is no such file; the message lists those that are.

    >>> find_method("paraclip").settings({"epochs": 2}).batch_size
    3072
    """
    method: Method = find(methods.__name__, method_names(), name, "METHOD", "method")
    return method
