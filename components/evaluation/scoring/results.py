"""Results of encoders: means with intervals as JSON, and the values per query behind them as safetensors."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from components.core.compute.metrics import finite
from components.core.system.errors import InputError
from components.core.tables import formats
from components.core.tables.files import atomic_file, content_hash
from components.core.tables.formats import read_record, write_record
from components.evaluation.scoring.benchmark import Benchmark, Correlation, Scores
from components.evaluation.scoring.correlations import correlation_interval
from components.evaluation.scoring.intervals import Interval, mean_interval
from components.evaluation.scoring.result_table import Cell, ResultRow, ResultTable, ends_text, exact

PUBLISHED = Path("reports/published")
_KINDS = ("values", "strata", "pictures")
_CORRELATIONS: tuple[Literal["spearman", "pearson", "tau_c"], ...] = ("spearman", "pearson", "tau_c")


@dataclass(frozen=True)
class Folders:
    """Folders of the pipeline, relative to the project."""

    models: Path = Path("models")
    pairs: Path = Path("data/pairs")
    embeddings: Path = Path("data/embeddings")
    evaluation: Path = Path("data/evaluation")
    reports: Path = Path("reports")

    @property
    def test_pairs(self) -> Path:
        """The pairs whose images are the gallery."""
        return self.pairs / "test.parquet"

    @property
    def metrics(self) -> Path:
        """Values with intervals, one JSON per encoder."""
        return self.reports / "metrics"

    @property
    def per_query(self) -> Path:
        """Values per query, one file per encoder."""
        return self.reports / "per_query"

    @property
    def csv(self) -> Path:
        """The comparison of all encoders."""
        return self.reports / "comparison.csv"


DEFAULT = Folders()


class Result(BaseModel):
    """One metric of one encoder: a mean over queries, a correlation, or another scalar.

    `ci95` is its 95% interval over queries; None if it is not a statistic of queries, or of too few.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float
    ci95: tuple[float, float] | None = None
    higher_is_better: bool
    queries: int | None = None

    @property
    def interval(self) -> Interval:
        """The value with its interval, which is endless for too few queries and has no length without queries."""
        if self.ci95 is None and self.queries is not None:
            return Interval(self.value, -math.inf, math.inf)
        return Interval(self.value, *self.span)

    @property
    def span(self) -> tuple[float, float]:
        """The interval; the value twice if there is none."""
        return self.ci95 or (self.value, self.value)

    def cell(self) -> Cell:
        """The cell of a results table."""
        value = exact(self.value) if self.ci95 is None else Interval(self.value, *self.ci95)
        return Cell(value, higher_is_better=self.higher_is_better)


class Report(BaseModel):
    """Results of one encoder on all benchmarks of the pipeline.

    `protocol` lists every benchmark with its protocol version. `data_hash` is over the benchmark tables and the test
    pairs. `test_queries` names the model that wrote test queries, if one did. `metrics` are by full metric name, in the
    order of the benchmarks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoder: str
    protocol: str
    data_hash: str
    encoder_sha256: str
    test_queries: str = ""
    metrics: dict[str, Result]

    @property
    def evaluation(self) -> str:
        """Hash that the values per query must share."""
        return content_hash(self.protocol, self.data_hash, self.encoder_sha256)

    @property
    def file(self) -> Path:
        """The report's file below its folder."""
        return Path(f"{self.encoder}.json")

    @property
    def fix(self) -> str:
        """The command that writes the report and its values."""
        return _run_evaluate(self.encoder)


def main_metrics(names: Sequence[str]) -> list[str]:
    """The metrics over all queries; those by group where a benchmark has no others."""
    return [name for name in names if name.count("/") == 1] or list(names)


def results_of(report: Report, title: str) -> ResultTable:
    """The main metrics with their 95% intervals."""
    results = {name: report.metrics[name] for name in main_metrics(list(report.metrics))}
    rows = [
        ResultRow(name, (Cell(exact(result.value)), ends_text(result.cell().value))) for name, result in results.items()
    ]
    return ResultTable(title, ("metric", "value", "95% interval"), rows)


class PublishedReport(Report):
    """Results of one encoder on one published benchmark.

    Attributes:
        partial: deviations of the data; results with any are not comparable with published ones.
        options: the user's options for this benchmark.
        left_out: groups of metrics without values, each with the reason.
        precision: of the encoder; published figures are compared with `fp32`.
        seconds: duration, with features from the cache.
    """

    benchmark: str
    version: int
    partial: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    left_out: tuple[str, ...] = ()
    precision: str = "fp32"
    seconds: float

    @property
    def evaluation(self) -> str:
        """Hash that the values per query must share."""
        options = json.dumps(self.options, sort_keys=True)
        return content_hash(self.encoder_sha256, str(self.version), self.data_hash, options)

    @property
    def file(self) -> Path:
        """`<encoder>/<start of the hash>/<benchmark>.json`, so that weights with the same name keep their results."""
        return published_file(self.encoder, self.encoder_sha256, self.benchmark)

    @property
    def fix(self) -> str:
        """The command that writes the report and its values."""
        return "run `cliptune evaluate --overwrite`"

    def is_of(self, encoder_sha256: str, version: int, data_hash: str, options: dict[str, Any]) -> bool:
        """Whether scoring again would return the same results."""
        scored = (self.encoder_sha256, self.version, self.data_hash, self.options)
        return scored == (encoder_sha256, version, data_hash, options)


def published_file(encoder: str, encoder_sha256: str, benchmark: str) -> Path:
    """The file of a `PublishedReport` below its folder."""
    return Path(encoder) / encoder_sha256[:8] / f"{benchmark}.json"


def write_results(report: Report, scores: Scores, folder: Path, per_query: Path | None = None) -> None:
    """Write the values per query to `per_query`, by default `folder`, and then the report to `folder`.

    Each is written completely or not at all.
    """
    arrays: dict[str, npt.NDArray[Any]] = {
        f"{kind}/{name}": array for kind in _KINDS for name, array in getattr(scores, kind).items()
    }
    arrays |= {f"rankings/{name}": ranking.astype(np.int32) for name, ranking in scores.rankings.items()}
    for name, columns in scores.correlations.items():
        arrays |= {f"{columns.kind}/gold/{name}": columns.gold, f"{columns.kind}/predicted/{name}": columns.predicted}
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with atomic_file((per_query or folder) / report.file.with_suffix(".safetensors")) as temporary:
        # A single entry, because the format does not keep the order of several.
        save_file(contiguous, temporary, {"evaluation": report.evaluation})
    write_record(folder / report.file, report)


def read_scores(report: Report, folder: Path) -> Scores:
    """Read the values per query behind `report`."""
    path = folder / report.file.with_suffix(".safetensors")
    found: dict[str, dict[str, npt.NDArray[Any]]] = {}
    try:
        with safe_open(path, framework="numpy") as file:
            if file.metadata() != {"evaluation": report.evaluation}:
                raise InputError(f"{path} and the metrics are of different evaluations: {report.fix}")
            for key in file.keys():  # noqa: SIM118 - the file is not a mapping
                kind, name = key.split("/", 1)
                found.setdefault(kind, {})[name] = file.get_tensor(key)
        finite(*found.get("values", {}).values())
    except FileNotFoundError:
        raise InputError(f"{path} is missing: {report.fix}") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}): {report.fix}") from None
    correlations = {
        name.removeprefix("gold/"): Correlation(kind, gold, found[kind][name.replace("gold/", "predicted/", 1)])
        for kind in _CORRELATIONS
        for name, gold in found.get(kind, {}).items()
        if name.startswith("gold/")
    }
    values, strata, pictures, rankings = (found.get(kind, {}) for kind in (*_KINDS, "rankings"))
    return Scores(values, strata, rankings, correlations, pictures=pictures)


def read_report(encoder: str, folder: Path) -> Report:
    """Read an encoder's results on the benchmarks of the pipeline."""
    return read_record(Report, folder / f"{encoder}.json", _run_evaluate(encoder), newest=formats.RESULTS)


def read_published(path: Path) -> PublishedReport:
    """Read one result on a published benchmark."""
    return read_record(PublishedReport, path, "delete it and run `cliptune evaluate` again", newest=formats.RESULTS)


def all_published(folder: Path = PUBLISHED) -> list[PublishedReport]:
    """Every result on published benchmarks below `folder`, by encoder, weights and benchmark."""
    return [read_published(path) for path in sorted(folder.glob("*/*/*.json"))]


def _run_evaluate(encoder: str) -> str:
    return f"run `dvc --wait-for-lock repro evaluate@{encoder}`"


def summarise(benchmark: Benchmark[Any], scores: Scores, resamples: int, seed: int) -> dict[str, Result]:
    """Results of all metrics with values, in the order in which the benchmark reports them."""
    results: dict[str, Result] = {}

    def add(name: str, found: Interval, queries: int | None) -> None:
        ends = (found.low, found.high) if found.is_known else None
        higher = benchmark.metric(name).higher_is_better
        results[name] = Result(value=found.value, ci95=ends, higher_is_better=higher, queries=queries)

    for name, values in scores.values.items():
        if len(values):
            add(name, mean_interval(values, *scores.groups(name)), len(values))
    for name, columns in scores.correlations.items():
        found = correlation_interval(columns, resamples, seed, scores.pictures.get(name))
        add(name, found, len(columns.gold))
    finite(*scores.scalars.values())
    for name, scalar in scores.scalars.items():
        add(name, exact(float(scalar)), None)
    return results
