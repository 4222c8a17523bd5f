"""What documents link to is there, and the README stays one screen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
DOCUMENTS = [REPO / "README.md", REPO / "CONTRIBUTING.md", *sorted((REPO / "docs").glob("*.md"))]
SITE = {"index.md", "reference.md"}
"""Pages that only the site of `make docs` has a use for."""
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_linked_files_exist(document: Path) -> None:
    missing = [link for link in _LINK.findall(document.read_text("utf-8")) if not (document.parent / link).exists()]
    assert not missing


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {(REPO / link).resolve() for link in _LINK.findall((REPO / "README.md").read_text("utf-8"))}
    assert {page for page in DOCUMENTS if page.parent.name == "docs" and page.name not in SITE} <= linked


def test_the_readme_is_short() -> None:
    assert len((REPO / "README.md").read_text("utf-8").splitlines()) <= 120
