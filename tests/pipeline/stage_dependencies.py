"""The code and the settings that each stage of dvc.yaml reads, computed from its imports.

A stage depends on folders: `components/<room>`, or `components/<room>/<folder>`.
`python -m tests.pipeline.stage_dependencies evaluate` prints the `deps` and `params` of a stage.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import grimp
import yaml

from components.core.settings import Settings

REPO = Path(__file__).parents[2]
ROOT = "components"
NO_RESULT = ("components.core.system", "components.core.tracking")
"""Packages that change no result: errors, progress, processes, the records of a run. No stage depends on them.
Nor on `components/core/settings`: DVC compares the values that a stage reads, its `params`."""
_SETTINGS = "components.core.settings"
_SCAN = re.compile(r"\b(\w+\.)?__path__")


@cache
def stages() -> dict[str, dict[str, Any]]:
    """Stage -> its definition in dvc.yaml or, for the study's, in research/dvc.yaml."""
    texts = ((REPO / folder / "dvc.yaml").read_text("utf-8") for folder in ("", "research"))
    return {name: stage.get("do", stage) for text in texts for name, stage in yaml.safe_load(text)["stages"].items()}


def folders_read(stage: str) -> set[str]:
    """The folders of the modules that a stage's command imports, without folders in other ones."""
    folders = {"/".join(_file(module).parts[:3][: len(_file(module).parts) - 1]) for module in modules_read(stage)}
    return {folder for folder in folders if not any(folder.startswith(f"{outer}/") for outer in folders)}


def folders_declared(stage: str) -> set[str]:
    return {name for name in stages()[stage]["deps"] if name.startswith((f"{ROOT}/", "research/"))}


def blocks_declared(stage: str) -> set[str]:
    """The blocks of params.yaml that a stage's `params` name."""
    return {name.split(".")[0] for name in stages()[stage].get("params", [])} & set(_blocks())


def blocks_read(stage: str) -> set[str]:
    """The blocks of params.yaml that the modules of a stage use."""
    names = {name: block for block, name in _blocks().items()}
    used = set()
    for module in modules_read(stage):
        for node in ast.walk(ast.parse((REPO / _file(module)).read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and _is_settings(node.value):
                used |= {names[node.attr]} if node.attr in names else set()
    return used


@cache
def modules_read(stage: str) -> set[str]:
    """The modules that a stage's command imports, and those of packages that are scanned for a name."""
    graph, seen, waiting = _graph(), set[str](), [stages()[stage]["cmd"].split()[2]]
    while waiting:
        module = waiting.pop()
        if module in seen or module.startswith(NO_RESULT):
            continue
        seen.add(module)
        waiting += [*graph.find_modules_directly_imported_by(module), *_scanned(module)]
        parents = accumulate(module.split(".")[:-1], "{}.{}".format)
        waiting += [parent for parent in parents if not _is_empty(parent)]
    return {module for module in seen if not module.startswith(_SETTINGS) and not _is_empty(module)}


def _scanned(module: str) -> Iterator[str]:
    """The modules of the packages in which `module` looks for a name."""
    for use in _SCAN.finditer((REPO / _file(module)).read_text("utf-8")):
        if use[1] is not None:
            imported = _graph().find_modules_directly_imported_by(module)
            packages = [name for name in imported if name.endswith(f".{use[1][:-1]}")]
        else:
            packages = [module] if _file(module).name == "__init__.py" else []
        for package in packages:
            yield from _graph().find_children(package)


def _is_settings(node: ast.expr) -> bool:
    """`settings`, or `self.settings` and the like."""
    return getattr(node, "id", getattr(node, "attr", None)) == "settings"


@cache
def _graph() -> Any:
    return grimp.build_graph(ROOT, "research", exclude_type_checking_imports=True, cache_dir=None)


@cache
def _file(module: str) -> Path:
    file = Path(*module.split("."))
    return file / "__init__.py" if (REPO / file / "__init__.py").is_file() else file.with_suffix(".py")


@cache
def _is_empty(module: str) -> bool:
    """Whether a module has no statement after its docstring."""
    return len(ast.parse((REPO / _file(module)).read_text("utf-8")).body) <= 1


@cache
def _blocks() -> dict[str, str]:
    """Block of params.yaml -> its name in `Settings`."""
    return {field.alias or name: name for name, field in Settings.model_fields.items()}


if __name__ == "__main__":
    for _stage in sys.argv[1:] or stages():
        print(f"{_stage}:", *(f"- {folder}" for folder in sorted(folders_read(_stage))), sep="\n  ")
        print("  params:", *sorted(blocks_read(_stage)))
