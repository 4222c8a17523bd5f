"""The database behind the store: opened by URL, asked again while it is away, and never shown with its password."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from sqlalchemy import URL, Connection, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from components.captions.store.databases import find_dialect
from components.core.errors import InputError
from components.core.retry import retrying

RETRY_S = 60.0
"""How long a database may be away, for example to restart, before the work stops."""

_ALIASES = {"postgres": "postgresql"}
T = TypeVar("T")


class Database:
    """Connections to one store.

    Attributes:
        dialect: how this database does things.
        shown: the URL without its password.
    """

    def __init__(self, url: str, *, must_exist: bool = False) -> None:
        """Prepare the connections; makes none yet.

        Raises:
            InputError: the URL is none, its database is not supported, or its file must exist and does not.
        """
        parsed = _parse(url)
        backend = parsed.get_backend_name()
        self.dialect = find_dialect(_ALIASES.get(backend, backend))
        self._secrets = [value for value in (parsed.password, *_hidden(parsed).values()) if value]
        self.shown = parsed.difference_update_query(_hidden(parsed)).render_as_string(hide_password=True)
        try:
            parsed, options = self.dialect.prepare(parsed, must_exist=must_exist)
            self._engine = create_engine(parsed, hide_parameters=True, **options)
        except (SQLAlchemyError, OSError) as error:
            raise self._unopened(error) from None
        self.dialect.listen(self._engine)

    def read(self, operation: Callable[[Connection], T]) -> T:
        """What `operation` finds; it may run more than once, see `write`.

        Raises:
            InputError: the database stays away or refuses.
        """
        return self._with_retries(lambda: self._once(self._reading, operation))

    def write(self, operation: Callable[[Connection], T], retry_s: float | None = None) -> T:
        """Run `operation` and commit what it changed.

        It runs again when the connection broke, even if its changes were committed and only the news of that was
        lost: doing it twice must be as good as once.

        Raises:
            InputError: the database stays away longer than `retry_s` (`RETRY_S` when not given) or refuses.
        """
        return self._with_retries(lambda: self._once(self._writing, operation), retry_s)

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Say that the store cannot be opened, whatever the fault in the block."""
        try:
            yield
        except (SQLAlchemyError, OSError) as error:
            raise self._unopened(error) from None

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """Say in one line what the database refused in the block."""
        try:
            yield
        except SQLAlchemyError as error:
            raise InputError(
                f"generation store {self.shown} failed ({self._reason(error)}): fix that and run the same command "
                "again, which goes on where this one stopped"
            ) from None

    def migrating(self) -> AbstractContextManager[Connection]:
        """A transaction that only one process is in."""
        return self.dialect.migrating(self._engine)

    def streaming(self) -> AbstractContextManager[Connection]:
        """A connection for reading, whose results need not fit into memory."""
        return self.dialect.streaming(self._engine)

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def _reading(self) -> AbstractContextManager[Connection]:
        return self.dialect.reading(self._engine)

    def _writing(self) -> AbstractContextManager[Connection]:
        return self.dialect.writing(self._engine)

    @staticmethod
    def _once(connect: Callable[[], AbstractContextManager[Connection]], operation: Callable[[Connection], T]) -> T:
        with connect() as connection:
            return operation(connection)

    def _with_retries(self, work: Callable[[], T], retry_s: float | None = None) -> T:
        with self.speaking():
            return retrying(RETRY_S if retry_s is None else retry_s, self._passes, self._told)(work)

    def _passes(self, error: BaseException) -> bool:
        return isinstance(error, DBAPIError) and self.dialect.passes(error)

    def _told(self, error: BaseException) -> str:
        return f"generation store {self.shown} is away ({self._reason(error)}): trying again"

    def _unopened(self, error: Exception) -> InputError:
        return InputError(
            f"generation store {self.shown} cannot be opened ({self._reason(error)}): start it or correct its URL"
        )

    def _reason(self, error: BaseException) -> str:
        """First line of what the driver said, without passwords."""
        said = str(getattr(error, "orig", None) or error).strip()
        reason = said.splitlines()[0][:200] if said else type(error).__name__
        for secret in self._secrets:
            reason = reason.replace(secret, "***")
        return reason


def _parse(url: str) -> URL:
    try:
        return make_url(url)
    # The error may quote the URL, password and all.
    except (ArgumentError, ValueError):
        raise InputError(
            "synthesize.store is no database URL: give for example sqlite:///state/generations.db or "
            "postgresql://user@host/cliptune"
        ) from None


def _hidden(url: URL) -> dict[str, str]:
    """Passwords among the URL's options."""
    return {key: str(value) for key, value in url.query.items() if "password" in key}
