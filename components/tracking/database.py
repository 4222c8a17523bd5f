"""Checks quickly whether a tracking database on a server answers; MLflow itself would retry for two minutes."""

from __future__ import annotations

from components.core.errors import InputError
from components.core.retry import retrying
from components.tracking.retry_policy import wait_s

_LONGEST_S = 20.0
"""How long it may be away as a stage begins: enough for a restart."""


def assert_answers(uri: str, shown: str) -> None:
    """Raise `InputError` where a database does not let us in.

    Args:
        uri: SQLAlchemy URL.
        shown: the same without its password.
    """
    from sqlalchemy import create_engine
    from sqlalchemy.exc import OperationalError, SQLAlchemyError
    from sqlalchemy.pool import NullPool

    try:
        engine = create_engine(uri, poolclass=NullPool)
        again = retrying(min(wait_s(), _LONGEST_S), lambda error: isinstance(error, OperationalError), longest_s=2)
        again(lambda: engine.connect().close())
    except (SQLAlchemyError, ImportError) as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise InputError(
            f"MLFLOW_TRACKING_URI: {shown} does not answer ({reason}): start the server, or correct the address"
        ) from None
