"""The pages for users, and the shell lines of their blocks."""

from __future__ import annotations

import re
from pathlib import Path

REPO = Path(__file__).parents[2]
PAGES = [REPO / "README.md", REPO / "CONTRIBUTING.md", *sorted((REPO / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def block_lines(text: str) -> list[str]:
    """The lines of a page's `sh` blocks; one that goes on behind a backslash is one line."""
    return "\n".join(_BLOCK.findall(text)).replace("\\\n", " ").splitlines()
