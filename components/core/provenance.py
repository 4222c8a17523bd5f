"""Where a result came from: the code's commit and the data's hashes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from components.core.files import content_hash, file_hash


def git_commit() -> str:
    """The checked-out commit, with `-dirty` behind it when tracked files differ; empty outside a repository."""
    commit = _git("rev-parse", "HEAD")
    if not commit:
        return ""
    # dvc.lock changes in every run and is recorded beside the commit, so it does not count as dirt.
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)dvc.lock")
    return f"{commit}-dirty" if changed else commit


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
    files = sorted(entry for entry in path.rglob("*") if entry.is_file())
    return content_hash(*(part for entry in files for part in (str(entry.relative_to(path)), file_hash(entry))))


def data_hashes(paths: Iterable[Path]) -> dict[str, str]:
    """Path -> content hash, for the sidecar of an encoder."""
    return {str(path): path_hash(path) for path in paths}
