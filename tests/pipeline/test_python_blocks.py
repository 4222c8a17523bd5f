"""The Python blocks of README and docs import what they use, and what they import exists."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.support.documented import PAGES

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
