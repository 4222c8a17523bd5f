"""Links of documents lead to files, and the README stays short."""

from __future__ import annotations

import re

from tests.support.documented import PAGES, REPO

SITE = {"index.md", "reference.md"}
"""Pages that only the site of `make docs` uses."""
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


def test_linked_files_exist() -> None:
    links = [(path, link) for path in PAGES for link in _LINK.findall(path.read_text("utf-8"))]
    assert [(path.name, link) for path, link in links if not (path.parent / link).exists()] == []


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {(REPO / link).resolve() for link in _LINK.findall((REPO / "README.md").read_text("utf-8"))}
    assert {page for page in PAGES if page.parent.name == "docs" and page.name not in SITE} <= linked


def test_the_readme_is_short() -> None:
    assert len((REPO / "README.md").read_text("utf-8").splitlines()) <= 120
