"""Asks whether a database answers, by its SQLAlchemy URL, and shows the URL without its password."""

from __future__ import annotations

import os
from pathlib import Path

from components.core.errors import InputError
from components.doctor.check import SECONDS, Finding, fail, ok


def examine_database(url: str, key: str) -> Finding:
    """Whether a database answers, or will be made by its first user.

    Args:
        url: SQLAlchemy URL.
        key: where the URL comes from, for the fix.

    Raises:
        InputError: it is no URL.
    """
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except ArgumentError:
        raise InputError(
            f"{key} is no SQLAlchemy URL: write sqlite:///file or postgresql://user@host/database"
        ) from None
    if parsed.get_backend_name() == "sqlite":
        return _file(Path(parsed.database or ""), key)
    return _server(url, key)


def _file(path: Path, key: str) -> Finding:
    folder = next((parent for parent in path.absolute().parents if parent.exists()), Path("/"))
    if not path.is_file():
        if os.access(folder, os.W_OK):
            return ok(f"{path} will be made by its first user")
        return fail(f"{path} cannot be made: {folder} is not writable", f"correct {key} or the folder's rights")
    import sqlite3
    from contextlib import closing

    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=SECONDS)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        return fail(f"{path} cannot be read ({error})", f"put a sound copy there, or correct {key}")
    if not os.access(path, os.W_OK):
        return fail(f"{path} is not writable", "correct its rights")
    return ok(f"{path}, {path.stat().st_size / 1e6:,.1f} MB")


def _server(url: str, key: str) -> Finding:
    from sqlalchemy.exc import NoSuchModuleError, SQLAlchemyError

    name, password = _shown(url)
    try:
        rows(url, "SELECT 1")
    except (NoSuchModuleError, ModuleNotFoundError):
        return fail(f"{name}: no driver is installed for this database", f"use PostgreSQL or SQLite in {key}")
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", error)).splitlines()[0]
        reason = reason.replace(password, "***") if password else reason
        return fail(f"{name} does not answer ({reason})", f"start the server, or correct {key} and the password")
    return ok(f"{name} answers")


def rows(url: str, query: str, **values: str) -> list[tuple[str, ...]]:
    """What a query finds.

    Args:
        url: SQLAlchemy URL.
        query: SQL with `:name` for each of `values`.
        values: name -> value.

    Raises:
        SQLAlchemyError: the database does not answer.
        InputError: it has no such table, or is a file that is not there.
    """
    from sqlalchemy import create_engine, text
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import OperationalError, ProgrammingError
    from sqlalchemy.pool import NullPool

    parsed = make_url(url)
    is_file = parsed.get_backend_name() == "sqlite"
    if is_file and not Path(parsed.database or "").is_file():
        raise InputError(f"{parsed.database} is not there: it is made by its first user")
    if parsed.drivername == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
    limit = {"connect_timeout": int(SECONDS)} if parsed.get_backend_name() == "postgresql" else {}
    engine = create_engine(parsed, poolclass=NullPool, connect_args=limit)
    try:
        with engine.connect() as connection:
            return [tuple(str(cell) for cell in row) for row in connection.execute(text(query), values)]
    except (OperationalError, ProgrammingError) as error:
        if isinstance(error, ProgrammingError) or is_file:
            raise InputError("the database has no such table: it is made by its first user") from None
        raise


def _shown(url: str) -> tuple[str, str]:
    """A URL as it may be shown, and its password."""
    from sqlalchemy.engine import make_url

    parsed = make_url(url)
    name = parsed.set(drivername=parsed.get_backend_name()).render_as_string(hide_password=True)
    return name, parsed.password if isinstance(parsed.password, str) else ""
