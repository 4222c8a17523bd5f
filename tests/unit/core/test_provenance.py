"""A commit is marked where the code that ran is not the code that it holds."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from components.core.provenance import git_commit


@pytest.mark.parametrize(
    ("path", "dirty"),
    [("tracked.py", True), ("components/mine.py", True), ("dvc.lock", False), ("notes.txt", False)],
)
def test_code_that_no_commit_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, dirty: bool) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tracked.py").touch()
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in (("init", "-q"), ("add", "tracked.py"), (*author, "commit", "-qm", "first")):
        subprocess.run(["git", *command], check=True)
    clean = git_commit()
    assert len(clean) == 40
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text("changed")
    assert git_commit() == clean + "-dirty" * dirty
