"""Links of documents lead to files, and the README stays short."""

from __future__ import annotations

import re
import tomllib

from tests.support.documented import PAGES, REPO

_PICTURE = re.compile(r"!\[([^\]]*)\]|<img [^>]*alt=\"([^\"]*)\"")
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


def test_linked_files_exist() -> None:
    links = [(path, link) for path in PAGES for link in _LINK.findall(path.read_text("utf-8"))]
    assert [(path.name, link) for path, link in links if not (path.parent / link).exists()] == []


def test_every_page_is_in_the_site_and_in_the_readme() -> None:
    pages = {page.name for page in PAGES if page.parent.name == "docs"}
    navigation = tomllib.loads((REPO / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    assert sorted(
        name for part in navigation for pages in part.values() for page in pages for name in page.values()
    ) == (sorted(pages))
    linked = {(REPO / link).resolve() for link in _LINK.findall((REPO / "README.md").read_text("utf-8"))}
    assert {REPO / "docs" / name for name in pages} <= linked


def test_every_picture_has_a_text_for_people_who_do_not_see_it() -> None:
    pictures = [(page.name, found) for page in PAGES for found in _PICTURE.findall(page.read_text("utf-8"))]
    assert len(pictures) >= 5
    assert [(page, texts) for page, texts in pictures if len("".join(texts)) < 20] == []


def test_the_readme_is_short() -> None:
    assert len((REPO / "README.md").read_text("utf-8").splitlines()) <= 100
