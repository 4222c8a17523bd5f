"""Checks quickly whether a tracking server or database answers; MLflow itself would retry for minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from components.core.errors import InputError
from components.core.retry import retrying
from components.tracking.errors import reason_of, shown_address
from components.tracking.retry_policy import environment, is_transient, wait_s

if TYPE_CHECKING:
    from mlflow import MlflowClient

_LONGEST_S = 20.0
"""How long it may be away as a stage begins: enough for a restart."""
_ONE_TRY = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "5"}


def assert_server(client: MlflowClient, uri: str) -> None:
    """Raise `InputError` where an MLflow server does not answer; that it refuses is for its next caller."""
    from mlflow.exceptions import MlflowException

    def ask() -> None:
        with environment(_ONE_TRY):
            client.search_experiments(max_results=1)

    try:
        retrying(min(wait_s(), _LONGEST_S), is_transient, longest_s=2)(ask)
    except MlflowException as error:
        if is_transient(error):
            raise _silent(uri, error) from error


def assert_database(uri: str) -> None:
    """Raise `InputError` where a database does not let us in.

    Args:
        uri: SQLAlchemy URL.
    """
    from sqlalchemy import create_engine
    from sqlalchemy.exc import OperationalError, SQLAlchemyError
    from sqlalchemy.pool import NullPool

    try:
        engine = create_engine(uri, poolclass=NullPool)
        again = retrying(min(wait_s(), _LONGEST_S), lambda error: isinstance(error, OperationalError), longest_s=2)
        again(lambda: engine.connect().close())
    except (SQLAlchemyError, ImportError) as error:
        raise _silent(uri, error) from error


def _silent(uri: str, error: Exception) -> InputError:
    return InputError(
        f"MLFLOW_TRACKING_URI: {shown_address(uri)} does not answer ({reason_of(error)}): start the server, or correct "
        "the address"
    )
