"""Makes the passwords for infra/compose.yaml once and writes them to infra/.env, which only its owner can read."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from components.core.system.errors import InputError, run_command

ENV = Path("infra/.env")
NAMES = (
    "POSTGRES_PASSWORD",
    "CLIPTUNE_DATABASE_PASSWORD",
    "MLFLOW_DATABASE_PASSWORD",
    "PREFECT_DATABASE_PASSWORD",
    "S3_ACCESS_KEY",
    "S3_SECRET_KEY",
    "MLFLOW_ADMIN_PASSWORD",
    "MLFLOW_FLASK_SECRET",
    "PREFECT_PASSWORD",
    "LLM_API_KEY",
)


def write_env(path: Path = ENV, lines: Iterable[str] | None = None) -> None:
    """Write a new secret for each of `NAMES`, or `lines`, into a file that only its owner can read."""
    if path.exists():
        raise InputError(f"{path} already exists: remove it and the volumes first if you want new passwords")
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{name}={secrets.token_hex(24)}" for name in NAMES] if lines is None else lines
    # Other users must not be able to read it at any moment.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write("".join(f"{line}\n" for line in lines))


def main(path: Annotated[Path, typer.Argument(help="File to write.")] = ENV) -> None:
    """Make the passwords that infra/compose.yaml needs.

    Example: python -m infra.compose_env && docker compose --file infra/compose.yaml up --detach
    """
    run_command(lambda: write_env(path))


if __name__ == "__main__":
    typer.run(main)
