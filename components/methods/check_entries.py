"""Whether methods take the entries of `methods`, found out without the libraries that their losses compute with.

A method's file declares its hyper-parameters beside its losses, so importing it imports torch and open_clip, for ten
seconds. Checking settings computes nothing: here empty stand-ins take the libraries' places, as Sphinx mocks the
imports of what it documents. They need a process of their own, because nothing else could then use torch:

python -m components.methods.check_entries < asked.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

from components.core.checking import REFUSED
from components.core.errors import InputError, told_of
from components.core.folders import PAIRS
from components.core.training_columns import ALIKE, holders_of

_LIBRARIES = ("open_clip", "peft", "safetensors.torch", "torch", "torchvision", "transformers")


class StandIns(MetaPathFinder, Loader):
    """Gives every import from the libraries a module whose attributes may be named, called and inherited from."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec for the libraries and all below them, and none for other modules."""
        stands_in = any(f"{fullname}.".startswith(f"{library}.") for library in _LIBRARIES)
        return ModuleSpec(fullname, self, is_package=True) if stands_in else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A mock, which the type checker has to take for a module."""
        module: ModuleType = MagicMock(name=spec.name, __name__=spec.name, __spec__=spec, __path__=[])
        return module

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def check_entries(entries: Mapping[str, Mapping[str, Any]], tables: Mapping[str, str]) -> list[str]:
    """Have the method of each entry take its keys, and compare what it needs with what the entry says it `reads`.

    Returns the entries whose method makes no use of pairs' weights.

    Args:
        entries: the block `methods` of params.yaml.
        tables: the file of each validated table that params.yaml names.

    Raises:
        InputError: a method is unknown, has another key or value, or needs a column that no table has or a table that
            `reads` does not cover.
    """
    from components.methods.registry import find_method

    unweighted = []
    for name, entry in entries.items():
        given = dict(entry)
        with told_of(f"params.yaml: methods.{name}"):
            method = find_method(str(given.pop("method", name)))
        reads = given.pop("reads", None)
        hyper = method.settings(given, name)
        with told_of(f"params.yaml: methods.{name}"):
            needed = holders_of(method.needs(hyper))
        _check_reads(name, reads, needed, tables)
        if not method.weighted(hyper):
            unweighted.append(name)
    return unweighted


def _check_reads(entry: str, reads: Any, needed: Sequence[str], tables: Mapping[str, str]) -> None:
    key = f"params.yaml: methods.{entry}.reads"
    for name in needed:
        if name not in tables:
            raise InputError(f"{key}: the method needs table '{name}': add it to validate.tables, and its tasks")
    files = [_file(name, reads, tables) for name in needed]
    if not isinstance(reads, str):
        holds = _listed(files or [PAIRS / "train.parquet"])
        raise InputError(f"{key} is missing: name {holds}, or a folder above")
    if outside := [file for file in files if not file.is_relative_to(reads)]:
        raise InputError(
            f"{key}: {reads} does not hold {_listed(outside)}, which the method needs: name a folder above"
        )


def _file(name: str, reads: Any, tables: Mapping[str, str]) -> Path:
    """Where a table is, or the one that `reads` names in its place."""
    others = {tables[other] for other in ALIKE.get(name, ()) if other in tables}
    return Path(reads if reads in others else tables[name])


def _listed(files: Sequence[Path]) -> str:
    return " and ".join(map(str, files))


def main() -> None:
    """Check the JSON object on stdin; what `check_entries` returns is JSON on stdout, a fault is one line on stderr."""
    asked = json.load(sys.stdin)
    if "--with-libraries" not in sys.argv:
        sys.meta_path.insert(0, StandIns())
    try:
        print(json.dumps(check_entries(asked["entries"], asked["tables"])))
    except InputError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        raise SystemExit(REFUSED) from None


if __name__ == "__main__":
    main()
