"""The suites inside a SQL database, through Great Expectations' SQLAlchemy data source."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pandas as pd

from components.core.errors import InputError
from components.validation.rules import Rule

if TYPE_CHECKING:
    from sqlalchemy import Engine, Table

_BLOCK = 5_000


class DatabaseFrames:
    """Batches that are tables of a database: each is filled for one suite and dropped after it.

    The database so holds one shard at a time, and nothing when the stage ends. Tables are named by chance, so that
    several runs can share a database.
    """

    def __init__(self, context: Any, url: str) -> None:
        """Reach the database.

        Raises:
            InputError: it cannot be reached; the message has no password.
        """
        self._engine = _connect(url)
        # A dollar sign would be taken for a variable of the context.
        address = self._engine.url.render_as_string(hide_password=False).replace("$", "%24")
        with warnings.catch_warnings():
            # It would rather have one of its own kinds of source for some databases.
            warnings.simplefilter("ignore")
            self._source = context.data_sources.add_sql("database", connection_string=address, create_temp_table=False)

    def result_format(self, rows: int) -> dict[str, Any]:
        """Rows are known by their column, and a database names no more of them than it is asked for."""
        return {
            "result_format": "COMPLETE",
            "unexpected_index_column_names": ["row"],
            "return_unexpected_index_query": False,
            "partial_unexpected_count": max(1, rows),
        }

    @contextmanager
    def batch(self, frame: pd.DataFrame, rules: list[Rule]) -> Iterator[Any]:
        """A table of row numbers and of the columns that the rules look at."""
        from great_expectations.exceptions import GreatExpectationsError
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with self._filled(_table(rules), frame) as name, self._asset(name) as asset:
                yield asset.add_batch_definition_whole_table("all rows").get_batch()
        except (SQLAlchemyError, GreatExpectationsError) as error:
            raise _fault(self._engine, "failed", error) from None

    @contextmanager
    def _filled(self, table: Table, frame: pd.DataFrame) -> Iterator[str]:
        columns = frame[[column.name for column in table.columns]]
        values = columns.astype(object).where(columns.notna(), None)
        with self._engine.begin() as connection:
            table.create(connection)
        try:
            with self._engine.begin() as connection:
                for start in range(0, len(values), _BLOCK):
                    rows: Any = values.iloc[start : start + _BLOCK].to_dict("records")
                    connection.execute(table.insert(), rows)
            yield table.name
        finally:
            with self._engine.begin() as connection:
                table.drop(connection)

    @contextmanager
    def _asset(self, name: str) -> Iterator[Any]:
        yield self._source.add_table_asset(name, table_name=f'"{name}"')
        self._source.delete_asset(name)

    def close(self) -> None:
        """Give the connections back."""
        self._source.get_engine().dispose()
        self._engine.dispose()


def _connect(url: str) -> Engine:
    from sqlalchemy import create_engine, text
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

    try:
        engine = create_engine(url, hide_parameters=True)
        with engine.connect() as connection:
            connection.execute(text("select 1"))
    except (ArgumentError, NoSuchModuleError, ImportError):
        # What SQLAlchemy says of it would repeat the address, password and all.
        raise InputError("params.yaml: validate.database is no SQLAlchemy URL: correct it") from None
    except SQLAlchemyError as error:
        raise _fault(engine, "cannot be reached", error) from None
    return engine


def _fault(engine: Engine, what: str, error: Exception) -> InputError:
    # The query of an address may hold a password too.
    shown = engine.url.set(query={}).render_as_string(hide_password=True)
    reason = str(error).splitlines()[0][:120]
    return InputError(f"database {shown} {what} ({reason}): mend it, or correct validate.database")


def _table(rules: list[Rule]) -> Table:
    from sqlalchemy import BigInteger, Column, Double, MetaData, Table, Text

    kinds = [Column(rule.column, Text() if rule.names_faults else Double(), quote=True) for rule in rules]
    name = f"cliptune_{secrets.token_hex(8)}"
    return Table(name, MetaData(), Column("row", BigInteger, primary_key=True, quote=True), *kinds)
