"""Reads the written test queries of `data/test_set`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from components.core.tables.files import file_hash
from components.core.tables.folders import TEST_SET
from components.core.tables.records import WRITTEN_QUERIES

FILE = "queries.parquet"


class WrittenQuery(NamedTuple):
    """One row of the table `WRITTEN_QUERIES`, with the same columns."""

    image_id: str
    caption: str
    query: str
    kind: str
    model: str
    prompt: str
    judge: str
    judge_prompt: str


def read_written_queries(folder: Path = TEST_SET) -> list[WrittenQuery]:
    """All written queries; empty without a test set.

    Raises:
        InputError: the table is damaged.
    """
    path = folder / FILE
    if not path.is_file():
        return []
    return [WrittenQuery(**row) for row in WRITTEN_QUERIES.read(path).to_pylist()]


def frozen_hash(folder: Path = TEST_SET) -> str:
    """SHA-256 of the table, which identifies the test set; empty without one."""
    path = folder / FILE
    return file_hash(path) if path.is_file() else ""
