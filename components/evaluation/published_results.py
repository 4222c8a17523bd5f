"""An encoder's results on one published benchmark, on disk: known by encoder, protocol version and data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from components.benchmarks.benchmark import Correlation, Scores
from components.core.errors import InputError
from components.core.files import atomic_file

FOLDER = Path("reports/published")
_KINDS: dict[str, Literal["spearman", "pearson"]] = {"spearman": "spearman", "pearson": "pearson"}


class Value(BaseModel):
    """One metric; `ci95` is its 95% bootstrap interval over queries, where it is a statistic of queries."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float
    ci95: tuple[float, float] | None
    higher_is_better: bool
    queries: int | None = None


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
    metrics: dict[str, Value]

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
    arrays: dict[str, npt.NDArray[Any]] = {f"values/{name}": values for name, values in scores.values.items()}
    arrays |= {f"strata/{name}": groups for name, groups in scores.strata.items()}
    arrays |= {f"pictures/{name}": found for name, found in scores.pictures.items()}
    for name, found in scores.correlations.items():
        arrays |= {f"{found.kind}/gold/{name}": found.gold, f"{found.kind}/predicted/{name}": found.predicted}
    with atomic_file(path.with_suffix(".safetensors")) as temporary:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary)
    with atomic_file(path) as temporary:
        temporary.write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return path


def read_values(encoder: str, benchmark: str, folder: Path = FOLDER) -> Scores:
    """The values per query behind one result.

    Raises:
        InputError: they are missing or damaged.
    """
    path = report_path(encoder, benchmark, folder).with_suffix(".safetensors")
    try:
        arrays = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} cannot be read ({error}): run `cliptune evaluate --again`") from None
    scores = Scores({})
    for key, array in arrays.items():
        kind, name = key.split("/", 1)
        if kind == "values":
            scores.values[name] = array
        elif kind == "strata":
            scores.strata[name] = array
        elif kind == "pictures":
            scores.pictures[name] = array
        elif name.startswith("gold/"):
            metric = name.removeprefix("gold/")
            scores.correlations[metric] = Correlation(_KINDS[kind], array, arrays[f"{kind}/predicted/{metric}"])
    return scores


def read_published(path: Path) -> PublishedReport:
    """Read one result.

    Raises:
        InputError: it is missing or damaged.
    """
    try:
        return PublishedReport.model_validate(json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        raise InputError(f"{path} is missing: run `cliptune evaluate`") from None
    except (json.JSONDecodeError, UnicodeDecodeError, ValidationError) as error:
        raise InputError(
            f"{path} is damaged ({str(error).splitlines()[0]}): delete it and run `cliptune evaluate` again"
        ) from None


def all_published(folder: Path = FOLDER) -> list[PublishedReport]:
    """Every result below `folder`, by encoder and benchmark.

    Raises:
        InputError: one is damaged.
    """
    return [read_published(path) for path in sorted(folder.glob("*/*.json"))]
