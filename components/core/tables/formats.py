"""The numbers of all formats that cliptune writes and reads, and the JSON files of records, which carry them.

Raise a number where an older reader would misread a file. A file without a number has format 1. A reader takes the
formats of the last two releases, and refuses a newer one. Records of format 1 carry no number, so that 0.2.0 reads
them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from components.core.system.errors import InputError
from components.core.tables.files import atomic_file

Record = TypeVar("Record", bound=BaseModel)

ENCODER = 2
"""`encoder.json` and the weights beside it. 1 had the size of pictures in place of their preparation."""
CHECKPOINT = 2
"""Of a training; 1 lacks the early metrics."""
INDEX = 2
"""Of image indexes. 1 is not read: its pictures were not upright."""
STORE = "0003"
"""Tables of the store of answers. 0001 has only `generations`; 0002 had a table `claims`, which nothing reads."""
REVIEWS = 1
DECISION = 1
RESULTS = 1
"""Results of an encoder, in `reports/` and beside a registered version."""
TEST_SET = 1
EMBEDDINGS = 1


class NewerFormatError(InputError):
    """A file is of a later version. It is not damaged, and must not be replaced or deleted."""


def refuse_newer(subject: str | Path, found: object, newest: int | str) -> None:
    """Raise `NewerFormatError` if the format `found` of a file is a higher number than this version reads."""
    if isinstance(found, type(newest)) and found > newest:  # type: ignore[operator]
        raise newer(subject, f"it has format {found}, this one reads {newest}")


def newer(subject: str | Path, reason: str) -> NewerFormatError:
    """The error about a file of a later version."""
    return NewerFormatError(f"{subject} was made by a newer cliptune ({reason}): update cliptune")


def write_record(path: Path, record: BaseModel) -> None:
    """Write a record atomically, with its fields in their order."""
    with atomic_file(path) as temporary:
        temporary.write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")


def read_record(kind: type[Record], path: Path, missing: str, damaged: str = "", newest: int | None = None) -> Record:
    """Read a record of that kind.

    Args:
        newest: the format that this version writes; None for files that others make.
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
