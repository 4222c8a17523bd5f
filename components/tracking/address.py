"""Where runs are tracked."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow import MlflowClient

STORE = Path("mlruns")
_SQLITE = "sqlite:///"


def tracking_uri() -> str:
    """`MLFLOW_TRACKING_URI`, or the SQLite file below `mlruns/`."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"{_SQLITE}{STORE / 'mlflow.db'}"


def shown_address(uri: str) -> str:
    """A store's address without the password that it may hold, for records and messages."""
    return re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1:***@", uri)


def make_client() -> MlflowClient:
    """A client of the tracking store, which is made where it is missing."""
    from mlflow import MlflowClient

    STORE.mkdir(exist_ok=True)
    uri = tracking_uri()
    # MLflow keeps one store per address for the life of a process, whatever folder that process has gone to since.
    if uri.startswith(_SQLITE) and not uri.startswith(f"{_SQLITE}/"):
        uri = f"{_SQLITE}{Path(uri.removeprefix(_SQLITE)).resolve()}"
    return MlflowClient(uri)
