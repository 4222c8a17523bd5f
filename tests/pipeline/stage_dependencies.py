"""What each stage of dvc.yaml reads of this project's code and settings, computed from its imports.

`python -m tests.pipeline.stage_dependencies evaluate` prints the code that belongs into a stage's `deps`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import grimp
import yaml

from components.core.settings import Settings

REPO = Path(__file__).parents[2]
ROOT = "components"
NO_RESULT = {
    "components.tracking": "records what a stage did; of its outputs only the run's id comes from it",
    "components.core.progress": "progress bars",
    "components.core.checking": "refuses settings",
    "components.core.errors": "how errors are shown",
    "components.core.project": "finds the project's folder",
    "components.core.processes": "how commands are started and ended",
    "components.core.supervisor": "ends commands",
    "components.core.retry": "repeats calls that failed",
}
"""Modules that no stage declares, and why what they do cannot change a result."""
_SETTINGS = "components.core.settings"
"""Builds every block; a stage declares the files of the blocks that its `params` name."""
ASSETS = {
    "components/base/assets": "components.base.shipped",
    "components/test_sets/image_sets/assets": "components.test_sets.image_sets.image_set",
    "components/captions/assets": "components.captions.synthesize",
    "components/costing/rates.yaml": "components.costing.rates",
    "components/data/world/description/lexicon.yaml": "components.data.world.description.lexicon",
    "components/encoders/adapter/models": "components.encoders.adapter.architecture",
    "components/explorer/page": "components.explorer.server",
    "components/report/page/templates": "components.report.plots",
    "components/report/published/collections": "components.report.published.paper_tables",
    "components/report/published/templates": "components.report.published.table",
    "components/study/templates": "components.study.page",
    "components/students/assets": "components.students.lessons",
    "components/core/function_words.json": "components.core.words",
    "components/validation/reporting/templates": "components.validation.reporting.report",
}
"""Files that are no modules, or their folders, and the module that opens them."""
_SCAN = re.compile(r"\b(\w+\.)?__path__")


@cache
def stages() -> dict[str, dict[str, Any]]:
    """Stage -> its definition in dvc.yaml."""
    raw = yaml.safe_load((REPO / "dvc.yaml").read_text("utf-8"))["stages"]
    return {name: stage.get("do", stage) for name, stage in raw.items()}


def code_read(stage: str) -> set[Path]:
    """The files below components/ that a stage's command imports, scans or opens."""
    modules = _closure([stages()[stage]["cmd"].split()[2]])
    modules |= {f"{_SETTINGS}.{_file_of_block(block)}" for block in blocks_declared(stage)}
    found = {_path(module) for module in modules}
    return found | {file for asset, module in ASSETS.items() if module in modules for file in files_below(asset)}


def code_declared(stage: str) -> set[Path]:
    """The files below components/ that a stage's `deps` name."""
    named = [name for name in stages()[stage]["deps"] if name.startswith(f"{ROOT}/")]
    return {file for name in named for file in files_below(name)}


def blocks_declared(stage: str) -> set[str]:
    """The blocks of params.yaml that a stage's `params` name."""
    return {name.split(".")[0] for name in stages()[stage].get("params", [])} & set(_blocks())


def blocks_read(stage: str) -> set[str]:
    """The blocks of params.yaml that the modules of a stage ask for."""
    fields = {field.alias or name: name for name, field in Settings.model_fields.items()}
    names = {name: block for block, name in fields.items()}
    found = set()
    for module in _closure([stages()[stage]["cmd"].split()[2]]):
        for node in ast.walk(ast.parse(_path(module, absolute=True).read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and _is_settings(node.value):
                found |= {names[node.attr]} if node.attr in names else set()
    return found


def _is_settings(node: ast.expr) -> bool:
    """`settings`, or `self.settings` and the like."""
    return getattr(node, "id", getattr(node, "attr", None)) == "settings"


def files_below(name: str) -> Iterator[Path]:
    """The file of this name, or all files below the folder of this name, that hold more than a docstring."""
    path = REPO / name
    found = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for file in found:
        if "__pycache__" not in file.parts and not _is_empty(file):
            yield file.relative_to(REPO)


def shortest(files: Iterable[Path]) -> list[str]:
    """Folders where all of a folder is among `files`, and the other files one by one."""
    wanted, lines = set(files), []

    def visit(folder: Path) -> None:
        inside = set(files_below(str(folder)))
        if inside and inside <= wanted:
            lines.append(str(folder))
        elif inside & wanted:
            for child in (path.relative_to(REPO) for path in sorted((REPO / folder).iterdir())):
                if (REPO / child).is_dir():
                    visit(child)
                elif child in wanted:
                    lines.append(str(child))

    visit(Path(ROOT))
    return lines


@cache
def _graph() -> Any:
    return grimp.build_graph(ROOT, exclude_type_checking_imports=True)


def _closure(start: Iterable[str]) -> set[str]:
    """All modules that importing `start` can bring in, and those that are found by the folder they lie in."""
    graph, seen, waiting = _graph(), set(), list(start)
    while waiting:
        module = waiting.pop()
        if module in seen or any(module == name or module.startswith(f"{name}.") for name in NO_RESULT):
            continue
        seen.add(module)
        if module != _SETTINGS:
            imported = graph.find_modules_directly_imported_by(module)
            waiting += imported
        waiting += [parent for parent in _parents(module) if not _is_empty(_path(parent, absolute=True))]
        waiting += _scanned(module)
    return {module for module in seen if not _is_empty(_path(module, absolute=True))}


def _scanned(module: str) -> Iterator[str]:
    """The modules of the folders that `module` lists to find one by its name."""
    for found in _SCAN.finditer(_path(module, absolute=True).read_text("utf-8")):
        if found[1] is None and _path(module).name != "__init__.py":
            continue
        imported = _graph().find_modules_directly_imported_by(module)
        named = [name for name in imported if name.endswith(f".{found[1][:-1]}")] if found[1] else [module]
        for folder in named:
            yield from _graph().find_children(folder)


def _parents(module: str) -> Iterator[str]:
    while "." in module:
        module = module.rpartition(".")[0]
        yield module


def _path(module: str, *, absolute: bool = False) -> Path:
    file = Path(*module.split("."))
    path = file / "__init__.py" if (REPO / file).is_dir() else file.with_suffix(".py")
    return REPO / path if absolute else path


@cache
def _is_empty(file: Path) -> bool:
    """Whether a file holds nothing, or a package's docstring alone."""
    return not file.stat().st_size or (file.name == "__init__.py" and len(ast.parse(file.read_text("utf-8")).body) <= 1)


def _blocks() -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in Settings.model_fields.items()}


def _file_of_block(block: str) -> str:
    """The module of core/settings/ that defines a block."""
    kinds = [_blocks()[block], *getattr(_blocks()[block], "__args__", ())]
    modules = [kind.__module__ for kind in kinds if getattr(kind, "__module__", "").startswith(f"{_SETTINGS}.")]
    return modules[0].rpartition(".")[2] if modules else "block"


if __name__ == "__main__":
    for _stage in sys.argv[1:] or stages():
        print(f"{_stage}:", *(f"- {line}" for line in shortest(code_read(_stage))), sep="\n  ")
        print("  params:", *sorted(blocks_read(_stage)))
