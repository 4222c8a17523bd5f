"""Links of documents lead to files, the README stays short, and Python blocks import what they use and what exists."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec

import pytest

from tests.support.documented import PAGES, REPO

_PICTURE = re.compile(r"!\[([^\]]*)\]|<img [^>]*alt=\"([^\"]*)\"")
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


def test_pages_are_linked_with_texts_for_pictures_and_the_readme_is_short() -> None:
    links = [(path, link) for path in PAGES for link in _LINK.findall(path.read_text("utf-8"))]
    assert [(path.name, link) for path, link in links if not (path.parent / link).exists()] == []
    pictures = [(page.name, found) for page in PAGES for found in _PICTURE.findall(page.read_text("utf-8"))]
    assert len(pictures) >= 5
    assert [(page, texts) for page, texts in pictures if len("".join(texts)) < 20] == []
    assert len((REPO / "README.md").read_text("utf-8").splitlines()) <= 100
    pages = {page.name for page in PAGES if page.parent.name == "docs"}
    navigation = tomllib.loads((REPO / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    assert sorted(
        name for part in navigation for pages in part.values() for page in pages for name in page.values()
    ) == (sorted(pages))
    linked = {(REPO / link).resolve() for link in _LINK.findall((REPO / "README.md").read_text("utf-8"))}
    assert {REPO / "docs" / name for name in pages} <= linked


BLOCKS = [
    (page.name, block)
    for page in PAGES
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
]


def test_there_are_blocks() -> None:
    assert len(BLOCKS) > 4


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_a_block_defines_all_its_names_and_imports_what_there_is(page: str, block: str) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "-"],
        input=block, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout
    imports = [node for node in ast.parse(block).body if isinstance(node, ast.Import | ast.ImportFrom)]
    here = [node for node in imports if find_spec(_first_name(node)) is not None]
    assert here or "fiftyone" in block
    exec(compile(ast.Module(here, []), page, "exec"), {})


def _first_name(node: ast.Import | ast.ImportFrom) -> str:
    return (node.names[0].name if isinstance(node, ast.Import) else node.module or "").partition(".")[0]
