"""Plug-in files: finds what the files of a package export by the file's name, as for methods, sources and tasks."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Collection, Iterable
from typing import Any

from components.core.errors import InputError

FOLDER_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*", re.ASCII)
"""What names of params.yaml that become folders and DVC stages may look like."""

_FEW, _SOME = 40, 8
"""Names that still fit into a message, and those shown of more."""


def file_names(folder: Iterable[str], skip: Collection[str] = ()) -> list[str]:
    """Names of the modules in a package's `__path__`, sorted, without those in `skip`.

    >>> from components.captions import engines
    >>> file_names(engines.__path__, skip=["vllm"])
    ['embedded', 'server']
    """
    return sorted(module.name for module in pkgutil.iter_modules(folder) if module.name not in skip)


def names_in(package: str, skip: Collection[str] = ()) -> list[str]:
    """Names of the modules in a package, as `file_names` gives them, found without importing the package."""
    spec = importlib.util.find_spec(package)
    return file_names(spec.submodule_search_locations or () if spec is not None else (), skip)


def find(package: str, known: list[str], name: str, export: str, what: str) -> Any:
    """What `<package>/<name>.py` exports as `export`.

    Args:
        package: dotted name of the package.
        known: the names that `file_names` gave.
        name: the file to import, without its ending.
        export: the attribute wanted.
        what: how the error calls the thing, such as "params.yaml: synthesize.engine".

    Raises:
        InputError: there is no such file; the message lists those that are.
    """
    return getattr(importlib.import_module(f"{package}.{choose(known, name, what)}"), export)


def choose(known: list[str], name: str, what: str) -> str:
    """`name`, if it is known.

    Raises:
        InputError: it is not; the message lists those that are, and the closest first.

    >>> choose(["folder", "embedded"], "foldr", "prepare.source")
    Traceback (most recent call last):
        ...
    components.core.errors.InputError: prepare.source 'foldr' is unknown: did you mean 'folder'? ...folder, embedded
    """
    if name not in known:
        few = len(known) <= _FEW
        close = difflib.get_close_matches(name, known, n=1 if few else 3)
        hint = f"did you mean '{close[0]}'? " if close else ""
        listed = ", ".join(known if few else [*close[1:], *known[:_SOME]])
        rest = "" if few else f" ... ({len(known)} in all)"
        raise InputError(f"{what} '{name}' is unknown: {hint}choose one of {listed}{rest}")
    return name
