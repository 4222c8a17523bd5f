"""Plug-ins: finds methods, sources, tasks and others by the names of their files, or in them."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from components.core.system.errors import InputError
from components.core.system.renamed import moved_files

FOLDER_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,99}", re.ASCII)
"""Valid names in params.yaml that become folders and DVC stages."""

_FEW, _SOME = 40, 8
"""Maximum number of names in a message, and number of names shown if there are more."""

_SEVERAL = re.compile(r"^(TASKS|TABLE_BENCHMARKS) = .*", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r'\bname="(\w+)"')


def modules_by_name(folder: Iterable[str]) -> dict[str, str]:
    """Name of each plug-in in a package's `__path__` -> its module, without importing any.

    A module is one plug-in of its own name, or the several of its tuple `TASKS` or `TABLE_BENCHMARKS`, which
    stands last in the file.
    """
    places = ((place, module) for place in folder for _, module, _ in pkgutil.iter_modules([place]))
    return {name: module for place, module in places for name in _names(Path(place, f"{module}.py"))}


@cache
def _names(file: Path) -> list[str]:
    """The names in the last tuple of a file; else that of the file, or of the package that it would be."""
    several = _SEVERAL.search(file.read_text("utf-8")) if file.is_file() else None
    return _NAME.findall(several[0]) if several else [file.stem]


def file_names(folder: Iterable[str], skip: Collection[str] = ()) -> list[str]:
    """Names of the plug-ins in a package's `__path__`, see `modules_by_name`, sorted, without those in `skip`.

    >>> from components.captions.generating import engines
    >>> file_names(engines.__path__, skip=["vllm"])
    ['local', 'server', 'table']
    """
    return sorted(modules_by_name(folder).keys() - set(skip))


def names_in(package: str, skip: Collection[str] = ()) -> list[str]:
    """Names of the plug-ins in a package as by `file_names`, without importing the package; none of a missing one."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        spec = None
    return file_names(spec.submodule_search_locations or () if spec is not None else (), skip)


def in_rooms(module: str) -> Iterator[ModuleType]:
    """The modules of this name in the rooms of `components`; so a low room runs code of higher ones, and names none."""
    for file in sorted(Path(__file__).parents[2].glob(f"*/{module}.py")):
        yield importlib.import_module(f"components.{file.parent.name}.{module}")


def find(package: str, known: list[str], name: str, export: str, key: str) -> Any:
    """The attribute `export` of `<package>/<name>.py`; `known` and `key` are those of `choose`."""
    if name not in known and (old := next((file for file, _ in moved_files() if file.stem == name), None)):
        raise InputError(f"{key} '{name}': {old} is of an earlier version: `cliptune upgrade` moves it")
    module = f"{package}.{choose(known, name, key)}"
    try:
        return getattr(importlib.import_module(module), export)
    except (ImportError, TypeError, AttributeError) as error:
        if isinstance(error, ImportError) and not (error.name or "").startswith("components."):
            raise
        file = f"{module.replace('.', '/')}.py"
        raise InputError(
            f"{file} does not load ({error}): if it is of an earlier version, run `cliptune upgrade`, or compare it "
            "with one that `cliptune new` writes"
        ) from None


def choose(known: list[str], name: str, key: str) -> str:
    """Return `name` if it is known; `key` is its setting or option, for the message.

    >>> choose(["folder", "synthetic"], "foldr", "prepare.source")
    Traceback (most recent call last):
        ...
    components.core.system.errors.InputError: prepare.source 'foldr' is unknown: did you mean 'folder'? ...
    """
    if name not in known:
        few = len(known) <= _FEW
        close = difflib.get_close_matches(name, known, n=1 if few else 3)
        hint = f"did you mean '{close[0]}'? " if close else ""
        listed = ", ".join(known if few else [*close[1:], *known[:_SOME]])
        rest = "" if few else f" ... ({len(known)} in all)"
        raise InputError(f"{key} '{name}' is unknown: {hint}choose one of {listed}{rest}")
    return name
