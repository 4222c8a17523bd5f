"""The command `cliptune new`, which writes a new method, benchmark, source or prompt task from templates."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from components.cli.tables import say
from components.core.system.errors import InputError
from components.core.system.project import in_project, require_project

if TYPE_CHECKING:
    from components.core.settings import Settings

_TEMPLATES = Path("infra/new")
_METHOD = {"lr": 1e-4, "batch_size": 128, "epochs": 1, "warmup_steps": 10}
_TASK: dict[str, Any] = {"table": "rewrites", "input": "data/pairs/train.parquet", "temperature": 0.9, "top_p": 0.95}


@dataclass(frozen=True)
class Family:
    """The files of a family, by template, its entry in params.yaml, and the commands that try a new member."""

    files: dict[str, str]
    entry: Callable[[str, Settings], dict[str, Any]]
    next: tuple[str, ...]


def _method_entry(name: str, settings: Settings) -> dict[str, Any]:
    entry = {"method": name, "train_data": "data/pairs/train.parquet", **_METHOD}
    return {"methods": {name: entry}, "compare_encoders": [*settings.compare_encoders, name]}


def _task_entry(name: str, settings: Settings) -> dict[str, Any]:
    entry: dict[str, Any] = {"synthesize": {"tasks": {name: dict(_TASK)}}}
    if _TASK["table"] not in settings.validation.tables:
        entry["validate"] = {"tables": {_TASK["table"]: {"folder": f"data/validated/{_TASK['table']}"}}}
    return entry


FAMILIES = {
    "method": Family(
        {"method.py": "components/training/methods/{}.py", "method_test.py": "tests/unit/training/methods/test_{}.py"},
        _method_entry,
        ("python docs/examples/method.py {}", "dvc repro evaluate@{}"),
    ),
    "benchmark": Family(
        {
            "benchmark.py": "components/evaluation/benchmarks/project/{}.py",
            "benchmark_test.py": "tests/unit/evaluation/benchmarks/project/test_{}.py",
        },
        lambda name, settings: {"evaluate": {"benchmarks": [*settings.evaluate.benchmarks, name]}},
        ("python docs/examples/benchmark.py {}", "dvc repro compare"),
    ),
    "source": Family(
        {
            "source.py": "components/data/sources/{}.py",
            "source_test.py": "tests/unit/data/sources/test_{}.py",
            "source.yaml": "infra/profiles/{}.yaml",
        },
        lambda _name, _settings: {},
        ("cliptune profile apply {}", "cliptune plan prepare"),
    ),
    "task": Family(
        {
            "task.py": "components/captions/prompting/tasks/{}.py",
            "task_test.py": "tests/unit/captions/prompting/test_{}.py",
        },
        _task_entry,
        ("python docs/examples/prompt_task.py {} --ask", "dvc repro synthesize@{}"),
    ),
}


@in_project
def new(
    family: Annotated[str, typer.Argument(help="method, benchmark, source or task.")],
    name: Annotated[str, typer.Argument(help="Name of the file: lower-case letters, digits and _.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the files and the entry; write nothing.")] = False,
) -> None:
    """Write the file, the test and the entry of a new method, benchmark, source or prompt task.

    The files come from infra/new and work as they are; docs/extend.md describes the next steps. Existing files are
    never replaced.

    Examples: cliptune new method mine --dry-run; cliptune new method mine; cliptune new benchmark same_first
    """
    from components.cli import edited_params
    from components.core.settings import load_settings
    from components.core.system.discovery import choose, file_names

    require_project()
    chosen = FAMILIES[choose(list(FAMILIES), family, "family")]
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise InputError(f"'{name}' cannot name a Python file: use lower-case letters, digits and _")
    files = {Path(path.format(name)): _rendered(template, name) for template, path in chosen.files.items()}
    if present := next((path for path in files if path.exists()), None):
        raise InputError(f"{present} exists: choose another name")
    if name in file_names([str(next(iter(files)).parent)]):
        raise InputError(f"the {family} '{name}' exists: choose another name")
    params = edited_params.laid_over([entry], name) if (entry := chosen.entry(name, load_settings())) else ""
    for path, text in files.items():
        say(f"{'would write' if dry_run else 'wrote'} {path} ({text.count(chr(10))} lines)")
        if not dry_run:
            path.write_text(text, encoding="utf-8")
    if params:
        say(edited_params.difference(params), nl=False)
    if params and not dry_run:
        edited_params.write(params)
    say("next: " + "; ".join(f"`{command.format(name)}`" for command in chosen.next))


def _rendered(template: str, name: str) -> str:
    from components.cli.templates import rendered

    title = name.replace("_", " ").capitalize()
    camel = "".join(part.capitalize() for part in name.split("_"))
    return rendered(_TEMPLATES / f"{template}.j2", name=name, title=title, camel=camel)
