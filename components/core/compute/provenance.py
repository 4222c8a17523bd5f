"""The origin of a result: the code's commit and the data's hashes."""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from components.core.system.errors import InputError
from components.core.system.retry import retrying
from components.core.system.stage_graph import CODE_CHANGED
from components.core.tables.files import content_hash, file_hash, write_json

LOCK = Path("dvc.lock")
DIRTY = "-dirty"
"""Suffix of a commit whose checkout had changes."""
_ROOT = Path(__file__).parents[3]
_CODE = Path("state/code.json")
"""DVC's hash of a folder of code -> its `hash_of_code`, for all code that stages ran here."""


def git_commit() -> str:
    """The checked-out commit, with the suffix `-dirty` if files differ or code is untracked; empty outside git."""
    commit = _git("rev-parse", "HEAD")
    if not commit:
        return ""
    # dvc.lock changes in every run and is recorded next to the commit, so its changes are ignored.
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)dvc.lock")
    # An untracked file may be a new method or benchmark, which changes results.
    untracked = _git("ls-files", "--others", "--exclude-standard", "--", "components")
    return commit + DIRTY if changed or untracked else commit


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def path_hash(path: Path) -> str:
    """Hash of a file's bytes, or of the names and bytes of all files below a folder."""
    if path.is_file():
        return file_hash(path)
    files = sorted(entry for entry in path.rglob("*") if entry.is_file() and "__pycache__" not in entry.parts)
    return content_hash(*(part for entry in files for part in (str(entry.relative_to(path)), file_hash(entry))))


@cache
def code_hash(stage: str) -> str:
    """Hash of the code that dvc.yaml lists for a stage, without docstrings and comments.

    An installed package has no dvc.yaml: there it is the hash of all of components/.
    """
    if not (_ROOT / "dvc.yaml").is_file():
        return hash_of_code(_ROOT / "components")
    return hash_of_code(*(_ROOT / name for name in _code_of(stage)))


def _code_of(stage: str) -> list[str]:
    listed = yaml.load((_ROOT / "dvc.yaml").read_text("utf-8"), yaml.CSafeLoader)["stages"].get(stage, {"deps": []})
    return [name for name in listed.get("do", listed)["deps"] if name.startswith("components/")]


def remember_code(stage: str) -> None:
    """Keep, for `words_only`, the `hash_of_code` of each folder of a stage's code under the hash that DVC locks."""
    if not (_ROOT / "dvc.yaml").is_file():
        return
    known = _remembered()
    new = {dvc_hash(_ROOT / name): name for name in _code_of(stage.partition("@")[0])}
    if found := {locked: hash_of_code(_ROOT / name) for locked, name in new.items() if locked not in known}:
        write_json(_CODE, known | found)


def words_only(locked: Mapping[str, Any], why: str) -> bool:
    """Whether a stage, by its entry in dvc.lock, would run only for changed docstrings and comments.

    Args:
        why: its changes, see `components.core.system.stage_graph.changes`.
    """
    if not why.startswith(CODE_CHANGED):
        return False
    deps = {str(dep["path"]): str(dep.get("md5", "")) for dep in locked.get("deps", [])}
    known = _remembered()
    now = {name: hash_of_code(_ROOT / name) for name in why.removeprefix(CODE_CHANGED).split(", ") if name in deps}
    same = f"{CODE_CHANGED}{', '.join(now)}" == why and all(known.get(deps[name]) == now[name] for name in now)
    if same and (new := {dvc_hash(_ROOT / name): now[name] for name in now}).items() - known.items():
        # A commit of these words makes them the locked ones.
        write_json(_CODE, known | new)
    return same


def _remembered() -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads(_CODE.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found


def dvc_hash(place: Path) -> str:
    """The MD5 by which dvc.lock knows a file or a folder."""
    if place.is_file():
        return _md5(place.read_bytes())
    files = {file.relative_to(place).as_posix(): file for file in place.rglob("*") if file.is_file()}
    rows = [
        {"md5": _md5(files[name].read_bytes()), "relpath": name} for name in sorted(files) if "__pycache__" not in name
    ]
    return f"{_md5(json.dumps(rows, sort_keys=True).encode())}.dir"


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def hash_of_code(*places: Path) -> str:
    """Hash of the Python below files and folders, without docstrings and comments, and of their other files."""
    files = [file for place in places for file in (sorted(place.rglob("*")) if place.is_dir() else [place])]
    kept = (file for file in files if file.is_file() and "__pycache__" not in file.parts)
    return content_hash(*(part for file in kept for part in (str(file.relative_to(_ROOT)), _meaning(file))))


def _meaning(file: Path) -> str:
    """A Python file's statements without docstrings and comments; the hash of another file."""
    if file.suffix != ".py":
        return file_hash(file)
    tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            # A text alone documents the definition around or above it, such as a field.
            node.body = [one for one in body if not _is_text(one)]  # type: ignore[attr-defined]
    return ast.unparse(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def data_hashes(paths: Iterable[Path]) -> dict[str, str]:
    """Path -> content hash, for the sidecar of an encoder."""
    return {str(path): path_hash(path) for path in paths}


def locked_hashes(lock: Path = LOCK) -> dict[str, str]:
    """Path -> MD5 of all entries of dvc.lock; empty without the file."""
    stages = locked_stages(lock).values()
    entries = [entry for kind in ("deps", "outs") for stage in stages for entry in stage.get(kind, [])]
    return {entry["path"]: str(entry.get("md5", "")) for entry in entries}


def _read_lock(lock: Path) -> Any:
    # With twenty encoders it has 5,000 lines, for which the loader in Python takes half a second.
    return yaml.load(lock.read_text("utf-8"), yaml.CSafeLoader)


def locked_stages(lock: Path = LOCK) -> dict[str, Any]:
    """Stage -> its entry in dvc.lock, of its last run; empty without the file."""
    try:
        # DVC may be writing it.
        raw = retrying(1.0, lambda error: isinstance(error, yaml.YAMLError), longest_s=0.3)(_read_lock, lock)
        stages = (raw or {}).get("stages", {})
        for stage in stages.values():
            for entry in (*stage.get("deps", []), *stage.get("outs", [])):
                entry["path"] = str(entry["path"])
    except FileNotFoundError:
        return {}
    except (yaml.YAMLError, UnicodeDecodeError, AttributeError, KeyError, TypeError) as error:
        raise InputError(f"{lock} is damaged ({str(error).splitlines()[0]}): restore it with git") from None
    return dict(stages)
