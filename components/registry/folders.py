"""The folders that promotion reads and writes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.core.compute.provenance import LOCK
from components.core.tables import folders
from components.data.leaks.report import FOLDER as LEAKS_FOLDER
from components.registry.decision import RECORDS

BASE = "base"
"""The encoder that the first candidate must beat."""


@dataclass(frozen=True)
class PromotionFolders:
    """Folders relative to the project; tests use others."""

    models: Path = Path("models")
    metrics: Path = Path("reports/metrics")
    quarantine: Path = folders.QUARANTINE
    records: Path = RECORDS
    dvc_lock: Path = LOCK
    leaks: Path = LEAKS_FOLDER
    test_set: Path = folders.TEST_SET

    def summary(self, table: str) -> Path:
        """The file with the result of stage `validate` for a table."""
        return self.quarantine / table / folders.SUMMARY

    def read_summary(self, table: str) -> dict[str, Any]:
        """The content of `summary`; empty if the file is missing or damaged."""
        try:
            return dict(json.loads(self.summary(table).read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return {}


DEFAULT = PromotionFolders()
