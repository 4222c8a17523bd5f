"""Checks index files of weights, which name the files of a large model."""

from __future__ import annotations

import json
from pathlib import Path

from components.core.system.errors import InputError


def check_weight_index(folder: str | Path) -> None:
    """Check that weights which an index file names are beside it, so that a hash of the folder covers them."""
    for path in sorted(Path(folder).rglob("*.index.json")):
        try:
            named = sorted(set(json.loads(path.read_text("utf-8"))["weight_map"].values()))
            outside = next((name for name in named if Path(name).name != name), None)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is not an index of weights ({error}): fetch or save the model again") from None
        if outside is not None:
            raise InputError(f"{path} names weights outside its folder, '{outside}': put all files beside it")
