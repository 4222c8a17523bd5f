"""Data Docs lead to every page, name every reason with rows that have it, and no text of a row is HTML."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

HOSTILE = "<script>alert(1)</script><img src=https://example.org/x.png> $PATH {{ 7*7 }}"


class Page(HTMLParser):
    """What a page would run or fetch, and where it leads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.fetched, self.links = path, [], []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "a":
            self.links.append(found.get("href") or "")
        elif tag in {"script", "iframe", "object"} or "src" in found or tag == "link":
            self.fetched.append(found.get("src") or tag)


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory, run_documented: Any) -> Path:
    """Data Docs of one good row, one with a hostile caption's answer, and one whose failure is hostile."""
    folder: Path = run_documented(tmp_path_factory.mktemp("docs"), HOSTILE)
    return folder


def test_index_leads_to_every_page(docs: Path) -> None:
    index = (docs / "index.html").read_text("utf-8")
    assert "rejected_paraphrases.html" in index
    for suite in ("paraphrases_answers", "paraphrases_shares"):
        assert re.search(rf'href="validations/{suite}/[^"]*\.html"', index), suite
    assert (docs / "quality" / "paraphrases.png").read_bytes().startswith(b"\x89PNG")
    assert 'src="quality/paraphrases.png"' in index


def test_links_lead_to_files_that_are_there(docs: Path) -> None:
    pages = [Page(path) for path in docs.rglob("*.html")]
    links = [(page, link) for page in pages for link in page.links if link[:1] not in {"#", ""}]
    targets = {(page.path.parent / link).resolve() for page, link in links if not link.startswith("https://")}
    assert targets
    assert [target for target in targets if not target.is_file()] == []


def test_the_index_and_the_rejected_rows_fetch_and_run_nothing(docs: Path) -> None:
    for name, wanted in (("index.html", ["quality/paraphrases.png"]), ("rejected_paraphrases.html", [])):
        assert Page(docs / name).fetched == wanted
        assert "url(http" not in (docs / name).read_text("utf-8").replace("'", "")


def test_rejected_rows_stand_under_their_reasons(docs: Path) -> None:
    page = (docs / "rejected_paraphrases.html").read_text("utf-8")
    sections = re.split(r"<h2 id=\"reason-\d+\">", page)
    short = next(section for section in sections if section.startswith("paraphrase_1_length</h2>"))
    assert "dog cat" in short
    assert "IMG_7 small dog" in short
    assert "pair pair1" in short
    assert "2 of 3 rows rejected" in page


def test_hostile_texts_are_shown_and_not_interpreted(docs: Path) -> None:
    shown = "&lt;script&gt;alert(1)&lt;/script&gt;"
    assert shown in (docs / "rejected_paraphrases.html").read_text("utf-8")
    (suite,) = (docs / "validations" / "paraphrases_answers").rglob("*.html")
    assert shown in suite.read_text("utf-8")
    assert "<script>alert" not in suite.read_text("utf-8")
    assert "{{ 7*7 }}" in suite.read_text("utf-8")
