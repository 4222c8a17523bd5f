"""Passwords and keys of the full stack, made at its first start and kept in a file only its user can read."""

from __future__ import annotations

import os
import secrets
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import yaml

from components.core.errors import InputError


@dataclass(frozen=True, repr=False)
class Credentials:
    """One secret for each who has to show one; none is ever printed."""

    postgres_admin: str
    postgres_prefect: str
    postgres_mlflow: str
    postgres_cliptune: str
    s3_access_key: str
    s3_secret_key: str
    mlflow_admin: str
    mlflow_flask: str
    prefect_admin: str


def load_credentials(path: Path) -> Credentials:
    """The credentials in a file, which is written with new ones when it is not there.

    Raises:
        InputError: others may read the file, or it is damaged.
    """
    names = [field.name for field in fields(Credentials)]
    if not path.exists():
        made = Credentials(*(secrets.token_hex(24) for _ in names))
        write_private(path, yaml.safe_dump(asdict(made), sort_keys=False))
        return made
    if path.stat().st_mode & 0o077:
        raise InputError(f"{path} may be read by others: run `chmod 600 {path}`, and think of what they may have read")
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
        if sorted(found) == sorted(names) and all(isinstance(value, str) and value for value in found.values()):
            return Credentials(**found)
    except (yaml.YAMLError, UnicodeDecodeError, TypeError):
        pass
    raise InputError(f"{path} is damaged: restore it, or remove its folder, databases and buckets included")


def write_private(path: Path, text: str) -> None:
    """Write a file of mode 600, which it has before anything is in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    os.replace(temporary, path)
