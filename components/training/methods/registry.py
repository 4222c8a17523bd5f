"""Finds methods, and those of the entries in params.yaml. A method's name is the name of its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.core.system.discovery import file_names, find
from components.core.system.errors import InputError, prefixed_errors
from components.core.tables.folders import BASE, VALIDATED
from components.training import methods
from components.training.methods.contract.method import Method, Optimisation


def method_names() -> list[str]:
    """The names of all methods, sorted."""
    return file_names(methods.__path__, skip=("contract", "registry"))


def find_method(name: str) -> type[Method[Optimisation]]:
    """The method in `methods/<name>.py`.

    >>> find_method("paraclip").read({"epochs": 2}).settings.batch_size
    3072
    """
    method: type[Method[Optimisation]] = find(methods.__name__, method_names(), name, "METHOD", "method")
    return method


@dataclass(frozen=True)
class Entry:
    """An entry of `methods` in params.yaml: its name, its method with its settings, the folder of its tables."""

    name: str
    method: Method[Optimisation]
    reads: Path


def find_entry(entries: Mapping[str, Mapping[str, Any]], name: str) -> Entry:
    """The entry called `name`; its key `method` names the method's file, by default the entry itself."""
    if name == BASE.name:
        raise InputError(f"params.yaml: methods.{name} would replace the base encoder: give the entry another name")
    if name not in entries:
        known = ", ".join(entries)
        raise InputError(f"params.yaml has no block methods.{name}: add one (it may be empty: {{}}), or use {known}")
    given = dict(entries[name])
    with prefixed_errors(f"params.yaml: methods.{name}"):
        method = find_method(str(given.pop("method", name)))
    reads = Path(str(given.pop("train_data", VALIDATED)))
    return Entry(name, method.read(given, name), reads)
