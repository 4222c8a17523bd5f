"""Public classes have names of their own, so that a search has one answer; commands define all before they run."""

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


def test_the_command_of_a_module_is_its_last_statement() -> None:
    early = []
    for root in ("components", "flows", "infra", "research"):
        for path in sorted((REPO / root).rglob("*.py")):
            before = ast.parse(path.read_text("utf-8")).body[:-1]
            early += [str(path) for node in before if isinstance(node, ast.If) and "__name__" in ast.dump(node.test)]
    assert early == []
