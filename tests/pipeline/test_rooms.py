"""The rooms import what the table of docs/architecture.md names, and nothing else."""

from __future__ import annotations

import re
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


def test_the_arrows_between_rooms_are_those_of_the_page() -> None:
    assert imported() == documented()


def test_every_room_imports_only_rooms_above_it_in_the_table() -> None:
    rooms = list(documented())
    assert len(rooms) == 9
    for place, room in enumerate(rooms):
        assert documented()[room] <= set(rooms[:place])
