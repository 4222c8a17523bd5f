"""Reads what the registry's aliases point at straight from its database, because importing MLflow takes seconds."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from components.core.errors import InputError
from components.registry.model import CHAMPION, PREVIOUS
from components.tracking import tracking_uri

_SQLITE = "sqlite:///"
_ALIASES = "SELECT alias, version FROM registered_model_aliases WHERE name = ?"


def local_aliases(model: str) -> dict[str, str] | None:
    """Alias -> version, of a registry that is a file of this machine; None of every other, and where it cannot tell."""
    uri = os.environ.get("MLFLOW_REGISTRY_URI") or tracking_uri()
    path = Path(uri.removeprefix(_SQLITE))
    if not uri.startswith(_SQLITE):
        return None
    if not path.is_file():
        return {}
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return {str(alias): str(version) for alias, version in connection.execute(_ALIASES, (model,))}
    except sqlite3.Error:
        return None


def check_previous(model: str) -> None:
    """Refuse a rollback that has nowhere to go back to, as far as a local registry tells.

    Raises:
        InputError: the model has no previous champion.
    """
    aliases = local_aliases(model)
    if aliases is not None and not (
        CHAMPION in aliases and aliases.get(PREVIOUS, aliases[CHAMPION]) != aliases[CHAMPION]
    ):
        raise no_previous(model)


def no_previous(model: str) -> InputError:
    """What both ways of looking say."""
    return InputError(f"{model} has no previous champion to go back to: only a second promotion makes one")
