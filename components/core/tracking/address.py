"""The address of the MLflow server or database, and a client of it.

The client fails fast if the server is unavailable. MLflow stores absolute places of artifacts; those of the default
SQLite store are corrected after its project was moved or copied.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from filelock import FileLock, Timeout

from components.core.system.errors import InputError, shown_address
from components.core.system.retry import retrying
from components.core.tracking.errors import environment, is_transient, reason_of, wait_s

if TYPE_CHECKING:
    from mlflow import MlflowClient

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
_URI = "MLFLOW_TRACKING_URI"
_EXPERIMENTS = "/.dvc/tmp/exps/"
"""Below a project: the temporary copies in which `dvc exp run --temp` and DVC's queue run experiments."""
_SQLITE = "sqlite:///"
_DATABASES = ("postgresql", "mysql", "mssql")
_RESTART_S = 20.0
"""How many seconds the server may be unavailable when a stage begins: enough for a restart."""
_LOCK_S = 60.0
"""Making the tables takes seconds."""
_ONE_TRY = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "5"}


def store_folder() -> Path:
    """`mlruns/` of the project, also in a temporary copy that DVC makes for an experiment."""
    project, in_copy, _ = f"{Path.cwd()}/".partition(_EXPERIMENTS)
    return Path(project) / STORE if in_copy else STORE


def tracking_uri() -> str:
    """`MLFLOW_TRACKING_URI`, or the SQLite file below `mlruns/`."""
    return os.environ.get(_URI) or f"{_SQLITE}{store_folder() / 'mlflow.db'}"


def artifacts_folder() -> Path:
    """Where MLflow keeps files of new experiments: next to an SQLite file, and otherwise below `mlruns/`."""
    uri = tracking_uri()
    folder = Path(uri.removeprefix(_SQLITE)).parent if uri.startswith(_SQLITE) else store_folder()
    return folder / ARTIFACTS


def nothing_tracked() -> bool:
    """Whether the store is a file that does not exist yet; a client would create it."""
    uri = tracking_uri()
    return uri.startswith(_SQLITE) and not Path(uri.removeprefix(_SQLITE)).is_file()


def make_client() -> MlflowClient:
    """A client of the tracking store, which is created if missing; raises InputError if it is unavailable."""
    from mlflow import MlflowClient

    # It prints the traceback of each database error that it also raises.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    store_folder().mkdir(exist_ok=True)
    uri = tracking_uri()
    if uri.startswith(_DATABASES):
        _check_database(uri)
    if not uri.startswith(_SQLITE):
        client = MlflowClient(uri)
    else:
        # MLflow keeps one store per address for the life of a process, even if the process changes its folder.
        file = Path(uri.removeprefix(_SQLITE)).resolve()
        with _alone(file):
            relocate(file)
            client = MlflowClient(f"{_SQLITE}{file}")
    if uri.startswith("http"):
        _check_server(client, uri)
    return client


def find_experiment(client: MlflowClient, name: str) -> str | None:
    """The id of an experiment, None if there is none; raises InputError if it is deleted, so that it accepts no run."""
    experiment = client.get_experiment_by_name(name)
    if experiment is None or experiment.lifecycle_stage == "active":
        return None if experiment is None else str(experiment.experiment_id)
    # MLflow's own command has another default.
    store = "" if os.environ.get(_URI) else f"{_URI}={tracking_uri()} "
    raise InputError(
        f"MLflow's experiment '{name}' is deleted: restore it with `{store}mlflow experiments restore --experiment-id "
        f"{experiment.experiment_id}`, or choose another dataset.name"
    )


def in_store(client: MlflowClient) -> AbstractContextManager[None]:
    """A block in which MLflow reads artifacts of the client's runs.

    MLflow looks a run's logged models up in the environment's store, and creates an empty one if there is none.
    """
    return environment({_URI: client.tracking_uri})


@contextmanager
def _alone(database: Path) -> Iterator[None]:
    """Processes that create the tables of one new file at the same time would break its migrations."""
    lock = FileLock(database.with_name(f"{database.name}.lock"))
    try:
        lock.acquire(timeout=_LOCK_S)
    except Timeout:
        raise InputError(f"{lock.lock_file} is held by another process for {_LOCK_S:.0f} s: end that process") from None
    except OSError as error:
        # A store of another user, or on a read-only disk, has its tables already.
        if not database.is_file():
            raise InputError(f"{lock.lock_file} cannot be written ({error}): make its folder writable") from None
    try:
        yield
    finally:
        lock.release()


def _check_server(client: MlflowClient, uri: str) -> None:
    """Raise `InputError` if an MLflow server is unavailable; a refusal is left to the next call."""
    from mlflow.exceptions import MlflowException

    def request() -> None:
        with environment(_ONE_TRY):
            client.search_experiments(max_results=1)

    try:
        retrying(min(wait_s(), _RESTART_S), is_transient, longest_s=2)(request)
    except MlflowException as error:
        if is_transient(error):
            raise _unavailable(uri, error) from error


def _check_database(uri: str) -> None:
    """Raise `InputError` if a database does not accept a connection."""
    from sqlalchemy import create_engine
    from sqlalchemy.exc import OperationalError, SQLAlchemyError
    from sqlalchemy.pool import NullPool

    try:
        engine = create_engine(uri, poolclass=NullPool)
        again = retrying(min(wait_s(), _RESTART_S), lambda error: isinstance(error, OperationalError), longest_s=2)
        again(lambda: engine.connect().close())
    except (SQLAlchemyError, ImportError) as error:
        raise _unavailable(uri, error) from error


def _unavailable(uri: str, error: Exception) -> InputError:
    return InputError(
        f"MLFLOW_TRACKING_URI: {shown_address(uri)} does not answer ({reason_of(error)}): start the server, or correct "
        "the address"
    )


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
