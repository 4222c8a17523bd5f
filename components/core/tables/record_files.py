"""Writes results, decisions and manifests as JSON files, and checks them when reading."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from components.core.system.errors import InputError
from components.core.tables.files import atomic_file

Record = TypeVar("Record", bound=BaseModel)


def write_record(path: Path, record: BaseModel) -> None:
    """Write a record atomically, with its fields in their order."""
    with atomic_file(path) as temporary:
        temporary.write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")


def read_record(kind: type[Record], path: Path, missing: str, damaged: str = "") -> Record:
    """Read a record of that kind."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{path} is missing: {missing}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        reason = f"{where}: {first['msg']}" if where else first["msg"]
        raise InputError(f"{path} is damaged ({reason}): {damaged or missing}") from None
