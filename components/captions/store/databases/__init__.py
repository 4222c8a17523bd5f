"""Databases that can hold the store, one file each; the file's name is what the URL begins with.

A file exports `DIALECT`, which says what this database says otherwise than the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError

from components.captions.store.rows import Row
from components.core.discovery import file_names, find


class Dialect(Protocol):
    """How one database does what the store needs.

    Attributes:
        now: SQL of the seconds since 1970 by the database's clock.
        collation: the one that compares bytes.
        among: SQL condition: `key` is one of the bound `:keys`, as `bind` gives them.
        skip_locked: SQL that ends a subquery for rows to change, so that it passes over those that someone else is
            changing; else two who change the same rows in other orders may wait for each other.
        size: SQL of the bytes that the store takes on disk.
    """

    now: str
    collation: str
    among: str
    skip_locked: str
    size: str

    def prepare(self, url: URL, *, must_exist: bool) -> tuple[URL, Mapping[str, Any]]:
        """The URL with its driver, and what `create_engine` is told.

        Raises:
            InputError: this URL cannot be a store, or its file must exist and does not.
        """
        ...

    def listen(self, engine: Engine) -> None:
        """Set up every connection of a new engine."""
        ...

    def reading(self, engine: Engine) -> AbstractContextManager[Connection]:
        """A connection for a look-up."""
        ...

    def writing(self, engine: Engine) -> AbstractContextManager[Connection]:
        """A connection for statements that change rows, committed when the block succeeds."""
        ...

    def streaming(self, engine: Engine) -> AbstractContextManager[Connection]:
        """A connection whose results need not fit into memory."""
        ...

    def migrating(self, engine: Engine) -> AbstractContextManager[Connection]:
        """A transaction that no other process can be in at the same time."""
        ...

    def passes(self, error: DBAPIError) -> bool:
        """Whether another try may succeed without anyone doing anything."""
        ...

    def bind(self, keys: Sequence[str]) -> str:
        """Keys as `among` takes them."""
        ...

    def add(self, connection: Connection, answers: list[Row], failures: list[Row], workers: Sequence[str]) -> int:
        """Keep rows and end the claims on them, those on failures only where they are `workers`'; all or nothing.

        Both lists are sorted by key. Returns how many answers are new.
        """
        ...

    def take(self, connection: Connection, keys: Sequence[str], worker: str, lease_s: float) -> set[str]:
        """Claim those of `keys`, which are sorted, that are unanswered and under no other worker's live lease."""
        ...


def find_dialect(backend: str) -> Dialect:
    """The dialect of a URL's backend.

    Raises:
        InputError: there is no such file.
    """
    known = file_names(__path__)
    dialect: Dialect = find(__name__, known, backend, "DIALECT", "generation store (synthesize.store): database")
    return dialect
