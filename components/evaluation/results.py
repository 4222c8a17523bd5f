"""An encoder's results on disk: values with intervals as JSON, beside the values per query."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from components.benchmarks.scores import Scores
from components.core.errors import InputError
from components.core.files import atomic_file, content_hash
from components.evaluation.values import read_values, write_values

Model = TypeVar("Model", bound=BaseModel)


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
    write_json(report, metrics_folder / f"{report.encoder}.json")


def read_report(encoder: str, folder: Path) -> Report:
    """Read an encoder's results.

    Raises:
        InputError: there are none, or the file is damaged.
    """
    return read_json(Report, folder / f"{encoder}.json", _fix(encoder))


def read_scores(report: Report, folder: Path) -> Scores:
    """Read the values per query behind `report`.

    Raises:
        InputError: they are missing, damaged, or belong to another evaluation.
    """
    return read_values(folder / f"{report.encoder}.safetensors", report.evaluation, _fix(report.encoder))


def write_json(report: BaseModel, path: Path) -> None:
    """Write a report whole or not at all."""
    with atomic_file(path) as temporary:
        temporary.write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")


def read_json(model: type[Model], path: Path, fix: str) -> Model:
    """Read a report of that kind; `fix` is the command that writes it again.

    Raises:
        InputError: it is missing or damaged.
    """
    try:
        return model.model_validate(json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        raise InputError(f"{path} is missing: {fix}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, ValidationError) as error:
        raise InputError(f"{path} is damaged ({str(error).splitlines()[0]}): {fix}") from None


def _fix(encoder: str) -> str:
    return f"run `python -m components.evaluation.evaluate --encoder {encoder}`"
