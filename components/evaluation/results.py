"""An encoder's results: from values per query to means with intervals, and both on disk.

Means with intervals are JSON; values per query are safetensors, which paired tests, plots and the gallery read again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from components.benchmarks.benchmark import Benchmark
from components.benchmarks.bootstrap import correlation_interval, interval
from components.benchmarks.scores import Correlation, Scores
from components.core.errors import InputError
from components.core.files import atomic_file, content_hash
from components.core.metrics import finite
from components.core.record_files import read_record, write_record

_CORRELATIONS: tuple[Literal["spearman", "pearson", "tau_c"], ...] = ("spearman", "pearson", "tau_c")


@dataclass(frozen=True)
class Folders:
    """Folders relative to the project; tests give others."""

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
        """The finished comparison."""
        return self.reports / "comparison.csv"


DEFAULT = Folders()


def write_values(scores: Scores, path: Path, evaluation: str) -> None:
    """Write the values whole or not at all, with the hash of the evaluation that they belong to."""
    rankings = {name: ranking.astype(np.int32) for name, ranking in scores.rankings.items()}
    kinds: dict[str, dict[str, Any]] = {
        "values": scores.values,
        "strata": scores.strata,
        "pictures": scores.pictures,
        "rankings": rankings,
    }
    arrays: dict[str, npt.NDArray[Any]] = {
        f"{kind}/{name}": array for kind, found in kinds.items() for name, array in found.items()
    }
    for name, found in scores.correlations.items():
        arrays |= {f"{found.kind}/gold/{name}": found.gold, f"{found.kind}/predicted/{name}": found.predicted}
    with atomic_file(path) as temporary:
        # A single entry, because the format keeps no order of several.
        save_file(
            {name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary, {"evaluation": evaluation}
        )


def read_values(path: Path, evaluation: str, fix: str) -> Scores:
    """The values in `path`; `fix` is the command that writes them again.

    Raises:
        InputError: they are missing, damaged, or belong to another evaluation.
    """
    found: dict[str, dict[str, npt.NDArray[Any]]] = {}
    try:
        with safe_open(path, framework="numpy") as file:
            if file.metadata() != {"evaluation": evaluation}:
                raise InputError(f"{path} and the metrics are of different evaluations: {fix}")
            for key in file.keys():  # noqa: SIM118 - the file is no mapping
                kind, name = key.split("/", 1)
                found.setdefault(kind, {})[name] = file.get_tensor(key)
    except FileNotFoundError:
        raise InputError(f"{path} is missing: {fix}") from None
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is damaged ({error}): {fix}") from None
    correlations = {
        name.removeprefix("gold/"): Correlation(kind, gold, found[kind][name.replace("gold/", "predicted/", 1)])
        for kind in _CORRELATIONS
        for name, gold in found.get(kind, {}).items()
        if name.startswith("gold/")
    }
    values, strata, rankings, pictures = (found.get(kind, {}) for kind in ("values", "strata", "rankings", "pictures"))
    return Scores(values, strata, rankings, correlations, pictures=pictures)


class Result(BaseModel):
    """One metric of one encoder.

    Attributes:
        value: mean over queries, a correlation, or a value that is neither.
        ci95: its 95% bootstrap interval over queries; None where it is no statistic of queries.
        higher_is_better: its direction.
        queries: how many queries it is about.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float
    ci95: tuple[float, float] | None = None
    higher_is_better: bool
    queries: int | None = None

    @property
    def span(self) -> tuple[float, float]:
        """The interval; the value twice where there is none."""
        return self.ci95 or (self.value, self.value)


class Report(BaseModel):
    """All results of one encoder.

    Attributes:
        encoder: name of the encoder.
        protocol: every benchmark with its protocol version.
        data_hash: hash over the benchmark tables and the test pairs.
        encoder_sha256: hash of the encoder's weights file.
        metrics: results by full metric name, in the order of the benchmarks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoder: str
    protocol: str
    data_hash: str
    encoder_sha256: str
    metrics: dict[str, Result]

    @property
    def evaluation(self) -> str:
        """Hash of what the values per query must belong to."""
        return content_hash(self.protocol, self.data_hash, self.encoder_sha256)


def write_results(report: Report, scores: Scores, metrics_folder: Path, per_query_folder: Path) -> None:
    """Write `<encoder>.safetensors` and then `<encoder>.json`, each whole or not at all."""
    write_values(scores, per_query_folder / f"{report.encoder}.safetensors", report.evaluation)
    write_record(metrics_folder / f"{report.encoder}.json", report)


def read_report(encoder: str, folder: Path) -> Report:
    """Read an encoder's results.

    Raises:
        InputError: there are none, or the file is damaged.
    """
    return read_record(Report, folder / f"{encoder}.json", _fix(encoder))


def read_scores(report: Report, folder: Path) -> Scores:
    """Read the values per query behind `report`.

    Raises:
        InputError: they are missing, damaged, or belong to another evaluation.
    """
    return read_values(folder / f"{report.encoder}.safetensors", report.evaluation, _fix(report.encoder))


def _fix(encoder: str) -> str:
    return f"run `python -m components.evaluation.evaluate --encoder {encoder}`"


def summarise(benchmark: Benchmark[Any], scores: Scores, resamples: int, seed: int) -> dict[str, Result]:
    """Results of all metrics that the benchmark found, in the order in which it reports them.

    Args:
        benchmark: declares each metric's direction.
        scores: its values; metrics without any query have no result.
        resamples: of each interval.
        seed: of the resampling.
    """
    found: dict[str, Result] = {}

    def add(name: str, value: float, ci95: tuple[float, float] | None, queries: int | None) -> None:
        higher = benchmark.metric(name).higher_is_better
        found[name] = Result(value=value, ci95=ci95, higher_is_better=higher, queries=queries)

    for name, values in scores.values.items():
        if len(values):
            mean = interval(values, resamples, seed, scores.strata.get(name), scores.pictures.get(name))
            add(name, mean.value, (mean.low, mean.high), len(values))
    for name, columns in scores.correlations.items():
        estimate = correlation_interval(columns, resamples, seed, scores.pictures.get(name))
        add(name, estimate.value, (estimate.low, estimate.high), len(columns.gold))
    finite(*scores.scalars.values())
    for name, scalar in scores.scalars.items():
        add(name, float(scalar), None, None)
    return found
