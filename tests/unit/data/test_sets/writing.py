"""Files of a published test set, written from a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.toy_context import colour_image


def write_files(folder: Path, files: Mapping[str, Any]) -> None:
    """Write each file: text, bytes, a picture of a colour (a tuple), or JSON; None writes nothing."""
    for name, content in files.items():
        path = folder / name
        if content is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, tuple):
            colour_image(path, content)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        elif content is not None:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
