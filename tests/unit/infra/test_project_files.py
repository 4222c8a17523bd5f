"""Files for people and their tools: the citation and the issue forms are valid, and say what the project says."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.dvc_project import make_project

REPO = Path(__file__).parents[3]
SCHEMAS = {
    "CITATION.cff": "citation-file-format",
    ".github/ISSUE_TEMPLATE/*.yml": "github-issue-forms",
    ".github/workflows/*.yml": "github-workflows",
    "infra/compose.yaml": "compose-spec",
}


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


@pytest.mark.parametrize(("pattern", "schema"), SCHEMAS.items())
def test_files_fit_their_schemas(pattern: str, schema: str) -> None:
    pytest.importorskip("check_jsonschema", reason="no schemas of these files are installed")
    import jsonschema

    vendored = files("check_jsonschema") / "builtin_schemas" / "vendor" / f"{schema}.json"
    found = sorted(REPO.glob(pattern))
    assert found
    for path in found:
        # YAML 1.1 reads the key `on` as true.
        content = {"on" if key is True else key: value for key, value in _read(path).items()}
        jsonschema.validate(content, json.loads(vendored.read_text("utf-8")))


def test_the_citation_is_of_this_version_and_released_notes_stay() -> None:
    citation = _read(REPO / "CITATION.cff")
    project = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]
    assert citation["license"] == project["license"]
    assert citation["version"] == next(iter(_released()))
    version = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    released, text = _released(), (REPO / "CHANGELOG.md").read_text("utf-8")
    assert (version in released) != (text.count("\n## Unreleased\n") == 1 and ".dev" in version)
    assert {name: hashlib.sha256(part.encode()).hexdigest()[:16] for name, part in released.items()} == NOTES


NOTES = {"0.2.0": "91f7897fd0b809c5"}
"""Released version -> start of the SHA-256 of its notes, which no later change may touch."""


def _released() -> dict[str, str]:
    """Version -> its part of CHANGELOG.md, newest first; each title has a date."""
    text = (REPO / "CHANGELOG.md").read_text("utf-8")
    parts = re.split(r"^(?=## \d)", text, flags=re.MULTILINE)[1:]
    titles = [re.match(r"## (\d[\w.]*) - \d{4}-\d\d-\d\d\n", part) for part in parts]
    return {title[1]: part for title, part in zip(titles, parts, strict=True) if title is not None}


def test_workflows_and_hooks_run_targets_of_the_makefile() -> None:
    targets = re.findall(r"^([\w./-]+):", (REPO / "Makefile").read_text("utf-8"), re.MULTILINE)
    used = re.findall(
        r"make ([\w./-]+)", "".join(path.read_text() for path in (REPO / ".github/workflows").glob("*.yml"))
    )
    assert set(used) <= set(targets)
    hooks = [hook for repo in _read(REPO / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    recipes = (REPO / "Makefile").read_text("utf-8")
    assert hooks
    assert all(f"@{hook['entry']}" in recipes for hook in hooks)


def test_make_clean_removes_outputs_of_the_pipeline_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(tmp_path, {"a": [], "b": ["a"]})
    kept = {name: tmp_path / name for name in ("out/mine.txt", "state/reviews.db", "other/dvc.yaml", "other/c")}
    for path in (*kept.values(), tmp_path / "out" / "a.txt", tmp_path / "out" / "b.txt"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    kept["other/dvc.yaml"].write_text("stages: {c: {cmd: echo, outs: [c]}}")
    monkeypatch.chdir(tmp_path)
    command = ["make", "-f", str(REPO / "Makefile"), "-o", ".venv/.ready", f"PY={sys.executable}", "clean"]
    (tmp_path / ".dvc" / "tmp").mkdir()
    running = {f"{tmp_path}/out/b.txt": {"pid": os.getppid(), "cmd": "repro"}}
    busy = tmp_path / ".dvc" / "tmp" / "rwlock"
    busy.write_text(json.dumps({"read": {}, "write": running}))
    assert "LockError" in subprocess.run(command, capture_output=True, text=True, check=False).stderr
    assert (tmp_path / "out" / "b.txt").exists()
    busy.unlink()
    for _ in range(2):
        subprocess.run(command, check=True)
        assert {path.name for path in (tmp_path / "out").iterdir()} == {"mine.txt"}
    assert all(path.exists() for path in kept.values())


def test_the_glossary_is_short_and_in_order() -> None:
    terms = re.findall(r"^- \*\*(.+?)\*\*: ", (REPO / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)
    assert 0 < len(terms) <= 40
    assert terms == sorted(terms, key=lambda term: re.sub(r"\W", " ", term.lower()))
