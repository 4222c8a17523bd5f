"""The rooms import what docs/architecture.md names; public classes have names of their own; commands stand last."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import grimp

REPO = Path(__file__).parents[2]
_ROW = re.compile(r"^\| `(\w+)` \| [^|]+ \| ([^|]*)\|$", re.MULTILINE)


def documented() -> dict[str, set[str]]:
    """Room -> the rooms that it may import, by the page."""
    page = (REPO / "docs" / "architecture.md").read_text("utf-8").partition("## The rooms")[2]
    return {room: set(re.findall(r"\w+", imports)) for room, imports in _ROW.findall(page)}


def imported() -> dict[str, set[str]]:
    """Room -> the rooms that its modules import, also for types alone."""
    graph = grimp.build_graph("components", cache_dir=None)
    arrows: dict[str, set[str]] = {room: set() for room in _rooms()}
    for module in graph.modules - {"components"}:
        room = module.split(".")[1]
        arrows[room] |= {name.split(".")[1] for name in graph.find_modules_directly_imported_by(module)} - {room}
    return arrows


def _rooms() -> list[str]:
    return [path.name for path in (REPO / "components").iterdir() if path.is_dir() and path.name != "__pycache__"]


def test_the_arrows_between_rooms_are_those_of_the_page_and_lead_upwards_in_its_table() -> None:
    assert imported() == documented()
    rooms = list(documented())
    assert len(rooms) == 9
    for place, room in enumerate(rooms):
        assert documented()[room] <= set(rooms[:place])


def _statements(*roots: str) -> Iterator[tuple[str, list[ast.stmt]]]:
    """The path and the statements of each module."""
    for root in roots:
        for path in sorted((REPO / root).rglob("*.py")):
            yield str(path.relative_to(REPO)), ast.parse(path.read_text("utf-8")).body


def test_names_of_public_classes_occur_once() -> None:
    """So that a search has one answer."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, body in _statements("components", "flows", "infra"):
        for node in body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)
    doubles = {name: files for name, files in sorted(places.items()) if len(files) > 1}
    assert not doubles, "\n".join(f"{name}: {', '.join(files)}" for name, files in doubles.items())


def test_the_command_of_a_module_is_its_last_statement() -> None:
    early = []
    for path, body in _statements("components", "flows", "infra", "research"):
        early += [path for node in body[:-1] if isinstance(node, ast.If) and "__name__" in ast.dump(node.test)]
    assert early == []
