"""Writes results, decisions and manifests as JSON files, and checks them when reading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from components.core.system.errors import InputError
from components.core.tables.files import atomic_file
from components.core.tables.formats import newer, refuse_newer

Record = TypeVar("Record", bound=BaseModel)


def write_record(path: Path, record: BaseModel) -> None:
    """Write a record atomically, with its fields in their order."""
    with atomic_file(path) as temporary:
        temporary.write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")


def read_record(kind: type[Record], path: Path, missing: str, damaged: str = "", newest: int | None = None) -> Record:
    """Read a record of that kind.

    Args:
        newest: the format that this version writes, of `formats`; None for files that others make.
    """
    try:
        content = path.read_bytes()
        if newest is not None:
            refuse_newer(path, _format(content), newest)
        return kind.model_validate_json(content)
    except FileNotFoundError:
        raise InputError(f"{path} is missing: {missing}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        if newest is not None and first["type"] == "extra_forbidden":
            raise newer(path, f"this one does not know '{where}'") from None
        reason = f"{where}: {first['msg']}" if where else first["msg"]
        raise InputError(f"{path} is damaged ({reason}): {damaged or missing}") from None


def _format(content: bytes) -> object:
    try:
        found = json.loads(content)
    except ValueError:
        return None
    return found.get("format") if isinstance(found, dict) else None
