"""The files of a trained student, and the list of those that there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from components.core.files import write_json
from components.core.settings import Settings

ADAPTER, RECORD, INDEX = "adapter_model.safetensors", "student.json", "index.json"


def read_record(folder: Path) -> dict[str, Any]:
    """What is known of the adapter in `folder`; empty where there is none or its record is broken."""
    try:
        record: dict[str, Any] = json.loads((folder / RECORD).read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return record


def write_index(settings: Settings, output: Path) -> None:
    """List the trained students of params.yaml in `output`; without any the list is empty."""
    records = {name: read_record(output / name) for name in settings.students}
    keys = ("base", "tasks", "fingerprint")
    write_json(
        output / INDEX, {name: {key: found.get(key) for key in keys} for name, found in records.items() if found}
    )
