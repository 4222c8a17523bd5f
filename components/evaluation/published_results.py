"""An encoder's results on one published benchmark, on disk: known by encoder, protocol version and data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from components.benchmarks.scores import Scores
from components.core.files import content_hash
from components.evaluation.results import Result, read_json, write_json
from components.evaluation.values import read_values, write_values

FOLDER = Path("reports/published")
_FIX = "run `cliptune evaluate --again`"


class PublishedReport(BaseModel):
    """One encoder on one benchmark.

    Attributes:
        encoder: its name.
        encoder_sha256: hash of everything its results depend on.
        benchmark: the benchmark's name.
        version: of the benchmark's protocol.
        protocol: whose rules were followed.
        data_hash: of the benchmark's files.
        partial: what was amiss with the data; results with anything here are not comparable with published ones.
        options: what the user chose for this benchmark.
        seconds: how long it took, features from the cache included.
        metrics: by full name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoder: str
    encoder_sha256: str
    benchmark: str
    version: int
    protocol: str
    data_hash: str
    partial: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    seconds: float
    metrics: dict[str, Result]

    @property
    def evaluation(self) -> str:
        """Hash of what the values per query must belong to."""
        options = json.dumps(self.options, sort_keys=True)
        return content_hash(self.encoder_sha256, str(self.version), self.data_hash, options)

    def is_of(self, encoder_sha256: str, version: int, data_hash: str, options: dict[str, Any]) -> bool:
        """Whether scoring again would give the same."""
        mine = (self.encoder_sha256, self.version, self.data_hash, self.options)
        return mine == (encoder_sha256, version, data_hash, options)


def report_path(encoder: str, benchmark: str, folder: Path = FOLDER) -> Path:
    """Where one result is: `<folder>/<encoder>/<benchmark>.json`."""
    return folder / encoder / f"{benchmark}.json"


def write_published(report: PublishedReport, scores: Scores, folder: Path = FOLDER) -> Path:
    """Write values per query as safetensors and then the report, each whole or not at all; returns its path."""
    path = report_path(report.encoder, report.benchmark, folder)
    write_values(scores, path.with_suffix(".safetensors"), report.evaluation)
    write_json(report, path)
    return path


def read_published_values(report: PublishedReport, folder: Path = FOLDER) -> Scores:
    """The values per query behind one result.

    Raises:
        InputError: they are missing, damaged, or belong to another evaluation.
    """
    path = report_path(report.encoder, report.benchmark, folder).with_suffix(".safetensors")
    return read_values(path, report.evaluation, _FIX)


def read_published(path: Path) -> PublishedReport:
    """Read one result.

    Raises:
        InputError: it is missing or damaged.
    """
    return read_json(PublishedReport, path, "delete it and run `cliptune evaluate` again")


def all_published(folder: Path = FOLDER) -> list[PublishedReport]:
    """Every result below `folder`, by encoder and benchmark.

    Raises:
        InputError: one is damaged.
    """
    return [read_published(path) for path in sorted(folder.glob("*/*.json"))]
