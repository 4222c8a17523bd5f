"""Reads the written test queries of `data/test_set`, and their summary."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from components.core.tables import formats
from components.core.tables.files import file_hash
from components.core.tables.folders import TEST_SET, WRITTEN
from components.core.tables.formats import read_record
from components.core.tables.records import WRITTEN_QUERIES

FILE, SUMMARY = f"{WRITTEN}.parquet", "summary.json"


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


class WrittenSummary(BaseModel):
    """Origin of a test set; without a model there are no queries.

    Attributes:
        captions_sha256: hash of the test split's captions.
        model, judge: keys of `synthesize.llms`, each with the identity of its weights.
        accepted, answers: kind -> number of queries in the test set, and of answers.
        reasons: kind -> reason -> number of rejected answers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    captions_sha256: str = ""
    queries_sha256: str = ""
    model: str = ""
    judge: str = ""
    accepted: dict[str, int] = {}
    answers: dict[str, int] = {}
    reasons: dict[str, dict[str, int]] = {}

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} of {self.answers[kind]:,} {kind}s" for kind, count in self.accepted.items())
        judge = "the same model with another prompt" if self.judge == self.model else self.judge
        return f"test queries written by {self.model}, judged by {judge}: {counts}; {self.queries_sha256[:12]}"


def read_written_queries(folder: Path = TEST_SET) -> list[WrittenQuery]:
    """All written queries for the test split; empty without a test set."""
    path = folder / FILE
    return [WrittenQuery(**row) for row in WRITTEN_QUERIES.read(path).to_pylist()] if path.is_file() else []


def read_summary(folder: Path = TEST_SET) -> WrittenSummary | None:
    """The origin of the test set; None without one."""
    path = folder / SUMMARY
    if not path.is_file():
        return None
    found = read_record(WrittenSummary, path, f"`dvc checkout {folder}` restores it", newest=formats.TEST_SET)
    return found if found.model else None


def frozen_hash(folder: Path = TEST_SET) -> str:
    """SHA-256 of the table, which identifies the test set; empty without one."""
    path = folder / FILE
    return file_hash(path) if path.is_file() else ""
