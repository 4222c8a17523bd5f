"""Passwords for infra/compose.yaml, made once: infra/.env, which nobody else may read.

python -m infra.compose_env
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from components.core.errors import InputError, run_command
from infra.credentials import write_private

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


def write_env(path: Path = ENV) -> None:
    """Write a new secret for each of `NAMES`.

    Raises:
        InputError: the file is there; new passwords would not fit the databases that exist.
    """
    if path.exists():
        raise InputError(f"{path} is there already: remove it and the volumes first if you want new passwords")
    write_private(path, "".join(f"{name}={secrets.token_hex(24)}\n" for name in NAMES))


def main(path: Annotated[Path, typer.Argument(help="The file to write.")] = ENV) -> None:
    """Make the passwords that infra/compose.yaml asks for.

    Example: python -m infra.compose_env && docker compose --file infra/compose.yaml up --detach
    """
    run_command(lambda: write_env(path))


if __name__ == "__main__":
    typer.run(main)
