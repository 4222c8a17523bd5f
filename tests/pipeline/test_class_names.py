"""A public class has a name of its own in the whole product, so that a search for it has one answer."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

REPO = Path(__file__).parents[2]


def test_names_of_public_classes_occur_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for root in ("components", "flows", "infra"):
        for path in sorted((REPO / root).rglob("*.py")):
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(str(path.relative_to(REPO)))
    doubles = {name: files for name, files in sorted(places.items()) if len(files) > 1}
    assert not doubles, "\n".join(f"{name}: {', '.join(files)}" for name, files in doubles.items())
