"""Files for people and their tools: the citation and the issue forms are valid, and say what the project says."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

REPO = Path(__file__).parents[3]
GITHUB = {"ISSUE_TEMPLATE": "github-issue-forms", "workflows": "github-workflows"}


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def _validate(content: Any, schema: str) -> None:
    pytest.importorskip("check_jsonschema", reason="no schemas of these files are installed")
    import jsonschema

    vendored = files("check_jsonschema") / "builtin_schemas" / "vendor" / f"{schema}.json"
    jsonschema.validate(content, json.loads(vendored.read_text("utf-8")))


def test_the_citation_is_of_this_version() -> None:
    citation = _read(REPO / "CITATION.cff")
    _validate(citation, "citation-file-format")
    project = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])


def test_the_changelog_has_this_version_with_its_date() -> None:
    version = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert re.search(
        rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", (REPO / "CHANGELOG.md").read_text("utf-8"), re.M
    )


@pytest.mark.parametrize(("folder", "schema"), GITHUB.items())
def test_files_for_github_fit_their_schema(folder: str, schema: str) -> None:
    found = sorted((REPO / ".github" / folder).glob("*.yml"))
    assert found
    for path in found:
        # YAML 1.1 reads the key `on` as true.
        _validate({"on" if key is True else key: value for key, value in _read(path).items()}, schema)


def test_workflows_run_targets_of_the_makefile() -> None:
    targets = re.findall(r"^([\w./-]+):", (REPO / "Makefile").read_text("utf-8"), re.MULTILINE)
    used = re.findall(
        r"make ([\w./-]+)", "".join(path.read_text() for path in (REPO / ".github/workflows").glob("*.yml"))
    )
    assert set(used) <= set(targets)


def test_hooks_run_what_the_makefile_installs() -> None:
    hooks = [hook for repo in _read(REPO / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    recipes = (REPO / "Makefile").read_text("utf-8")
    assert hooks
    assert all(f"@{hook['entry']}" in recipes for hook in hooks)


def test_the_glossary_is_short_and_in_order() -> None:
    terms = re.findall(r"^- \*\*(.+?)\*\*: ", (REPO / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)
    assert 0 < len(terms) <= 40
    assert terms == sorted(terms, key=lambda term: re.sub(r"\W", " ", term.lower()))
