"""A store's tables brought up to date when it is opened, by whichever process comes first."""

from __future__ import annotations

import threading
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from components.captions.store.database import Database
from components.captions.store.schema import HEAD
from components.core.errors import InputError

SCRIPTS = Path(__file__).parent / "migrations"
_ONE_AT_A_TIME = threading.Lock()
"""Alembic keeps the migration it is in among its module's names."""


def migrate(database: Database) -> None:
    """Make or change the tables where they are not those of `components.captions.store.schema`.

    Raises:
        InputError: the database cannot be reached, or its tables are from a newer version.
    """
    with database.opening():
        with database.streaming() as connection:
            if _version(connection) == HEAD:
                return
        with _ONE_AT_A_TIME, database.migrating() as connection:
            found = _version(connection)
            if found is not None and found > HEAD:
                raise InputError(
                    f"generation store {database.shown} was made by a newer cliptune (its tables have version {found}, "
                    f"this one knows {HEAD}): update cliptune"
                )
            if found != HEAD:
                _upgrade(connection)


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found


def _upgrade(connection: Connection) -> None:
    # Most stores that are opened need none of it, and it takes a while to import.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
