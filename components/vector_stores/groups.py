"""Names columns whose values separate collections or models that share one table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

_NAMES = re.compile(r"(?:^|[^a-z])(collection|model|encoder|embedder|namespace|tenant|dataset|index|modality|kind|type)"
                    r"(?:[^a-z]|$)", re.IGNORECASE)  # fmt: skip
_SAFE = "=' "
_MOST = 20
"""A column with more values is of something else."""


class Groups:
    """Counts the values of columns with such names over all rows that are read."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def add(self, payloads: Iterable[Mapping[str, Any]]) -> None:
        """Count the values of these rows."""
        for payload in payloads:
            for name, value in payload.items():
                counts = self._counts.setdefault(name, Counter())
                if len(counts) <= _MOST and value is not None and _NAMES.search(name):
                    counts[str(value) if isinstance(value, int | float) else f"'{value}'"] += 1

    def notes(self, where: str) -> list[str]:
        """A line for each such column with several values that is not in the condition `where`."""
        return [
            f"column {name} has {len(counts)} values, such as {' and '.join(list(counts)[:2])}: if these are several "
            f"models or kinds, read one of them with where={quote(f'{name}={next(iter(counts))}', safe=_SAFE)}"
            for name, counts in self._counts.items()
            if 1 < len(counts) <= _MOST and name not in where
        ]
