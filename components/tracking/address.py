"""The address of the MLflow server or database, and its client."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from components.tracking.reaching import assert_database, assert_server

if TYPE_CHECKING:
    from mlflow import MlflowClient

STORE = Path("mlruns")
_EXPERIMENTS = "/.dvc/tmp/exps/"
"""In a project's folder: where DVC runs experiments in copies that it deletes (`dvc exp run --temp`, its queue)."""
_SQLITE = "sqlite:///"
_DATABASES = ("postgresql", "mysql", "mssql")


def store_folder() -> Path:
    """`mlruns/` of the project, in which the copies that DVC makes for experiments keep their runs, too."""
    project, in_copy, _ = f"{Path.cwd()}/".partition(_EXPERIMENTS)
    return Path(project) / STORE if in_copy else STORE


def tracking_uri() -> str:
    """`MLFLOW_TRACKING_URI`, or the SQLite file below `mlruns/`."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"{_SQLITE}{store_folder() / 'mlflow.db'}"


def nothing_tracked() -> bool:
    """Whether the store is a file that is not there yet; a client would make it."""
    uri = tracking_uri()
    return uri.startswith(_SQLITE) and not Path(uri.removeprefix(_SQLITE)).is_file()


def make_client() -> MlflowClient:
    """A client of the tracking store, which is made where it is missing.

    Raises:
        InputError: it is a server or a database that does not answer.
    """
    from mlflow import MlflowClient

    # It prints the traceback of every error of its database that it also raises.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    store_folder().mkdir(exist_ok=True)
    uri = tracking_uri()
    if uri.startswith(_DATABASES):
        assert_database(uri)
    # MLflow keeps one store per address for the life of a process, whatever folder that process has gone to since.
    if uri.startswith(_SQLITE) and not uri.startswith(f"{_SQLITE}/"):
        uri = f"{_SQLITE}{Path(uri.removeprefix(_SQLITE)).resolve()}"
    client = MlflowClient(uri)
    if uri.startswith("http"):
        assert_server(client, uri)
    return client
