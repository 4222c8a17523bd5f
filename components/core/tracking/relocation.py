"""Corrects the places of artifacts in the default SQLite store after its project was moved or copied.

MLflow stores absolute places, which then lead to a folder that is gone or that belongs to the original.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

from components.core.system.errors import InputError

STORE = Path("mlruns")
ARTIFACTS = "artifacts"
_PLACES = {
    "experiments": ("artifact_location",),
    "runs": ("artifact_uri",),
    "logged_models": ("artifact_location",),
    "model_versions": ("source", "storage_location"),
}
"""Table -> columns with a place."""
_DEFAULT = re.compile(rf"(?P<root>(?:file://)?/.*/{STORE}/{ARTIFACTS})(?P<rest>/.+)")
_WAIT_S = 30.0


def relocate(database: Path) -> None:
    """Let places next to another database lead to the artifacts next to this one.

    Unchanged are databases outside of a folder `mlruns`, and places of projects that share this database.
    """
    if database.parent.name != STORE.name or not database.is_file():
        return
    here = (database.parent / ARTIFACTS).resolve()
    try:
        with closing(sqlite3.connect(database, timeout=_WAIT_S)) as connection, connection:
            for old, new in _moved(connection, database, here):
                _replace(connection, old, new)
    except sqlite3.Error as error:
        raise InputError(f"{database} cannot be corrected after its move ({error}): make it writable") from None


def _moved(connection: sqlite3.Connection, database: Path, here: Path) -> list[tuple[str, str]]:
    """Places of experiments that belong next to this database and are elsewhere, and their right places."""
    moved = []
    for place, created in _experiments(connection):
        match = _DEFAULT.fullmatch(place)
        if match is None:
            continue
        is_uri = place.startswith("file:")
        root = Path(unquote(urlsplit(match["root"]).path) if is_uri else match["root"])
        below = (unquote(match["rest"]) if is_uri else match["rest"]).lstrip("/")
        is_copy = (place, created) in _experiments_of(root.with_name(database.name))
        if root.resolve() != here and ((here / below).exists() or not (root / below).exists() or is_copy):
            moved.append((place, f"{here.as_uri() if is_uri else here}{match['rest']}"))
    return moved


def _experiments(connection: sqlite3.Connection) -> list[tuple[str, int]]:
    """Place and time of creation of each experiment; none before MLflow has made its tables."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'experiments'").fetchone():
        return []
    return connection.execute("SELECT artifact_location, creation_time FROM experiments").fetchall()


def _experiments_of(database: Path) -> list[tuple[str, int]]:
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return _experiments(connection)
    except sqlite3.Error:
        return []


def _replace(connection: sqlite3.Connection, old: str, new: str) -> None:
    for table, columns in _PLACES.items():
        present = {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}
        for column in present.intersection(columns):
            connection.execute(
                f"UPDATE {table} SET {column} = :new || substr({column}, length(:old) + 1) "
                f"WHERE {column} = :old OR substr({column}, 1, length(:old) + 1) = :old || '/'",
                {"old": old, "new": new},
            )
