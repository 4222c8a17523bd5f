"""An encoder's results on disk: values with intervals as JSON, values per query as safetensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from components.benchmarks.benchmark import Scores
from components.core.errors import InputError
from components.core.files import atomic_file, content_hash


class Result(BaseModel):
    """One metric's mean over queries with its 95% bootstrap interval."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float
    ci95: tuple[float, float]
    higher_is_better: bool


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


def write_results(report: Report, scores: Scores, metrics_folder: Path, per_query_folder: Path) -> None:
    """Write `<encoder>.safetensors` and then `<encoder>.json`, each whole or not at all."""
    arrays: dict[str, npt.NDArray[Any]] = {f"values/{name}": values for name, values in scores.values.items()}
    arrays |= {f"strata/{name}": groups for name, groups in scores.strata.items()}
    arrays |= {f"pictures/{name}": found for name, found in scores.pictures.items()}
    arrays |= {f"rankings/{name}": ranking.astype(np.int32) for name, ranking in scores.rankings.items()}
    with atomic_file(per_query_folder / f"{report.encoder}.safetensors") as temporary:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary, _identity(report))
    with atomic_file(metrics_folder / f"{report.encoder}.json") as temporary:
        temporary.write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")


def read_report(encoder: str, folder: Path) -> Report:
    """Read an encoder's results.

    Raises:
        InputError: there are none, or the file is damaged.
    """
    path = folder / f"{encoder}.json"
    try:
        return Report.model_validate(json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        raise InputError(f"{path} is missing: {_fix(encoder)}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, ValidationError) as error:
        raise InputError(f"{path} is damaged ({str(error).splitlines()[0]}): {_fix(encoder)}") from None


def read_scores(report: Report, folder: Path) -> Scores:
    """Read the values per query behind `report`.

    Raises:
        InputError: they are missing, damaged, or belong to another evaluation.
    """
    path = folder / f"{report.encoder}.safetensors"
    kinds: dict[str, dict[str, npt.NDArray[Any]]] = {kind: {} for kind in ("values", "strata", "rankings", "pictures")}
    try:
        with safe_open(path, framework="numpy") as file:
            if file.metadata() != _identity(report):
                raise InputError(f"{path} and the metrics are of different evaluations: {_fix(report.encoder)}")
            for key in file.keys():  # noqa: SIM118 - the file is no mapping
                kind, name = key.split("/", 1)
                kinds[kind][name] = file.get_tensor(key)
    except FileNotFoundError:
        raise InputError(f"{path} is missing: {_fix(report.encoder)}") from None
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is damaged ({error}): {_fix(report.encoder)}") from None
    return Scores(kinds["values"], kinds["strata"], kinds["rankings"], pictures=kinds["pictures"])


def _identity(report: Report) -> dict[str, str]:
    """Which evaluation the values belong to; a single entry, because the format keeps no order of several."""
    return {"evaluation": content_hash(report.protocol, report.data_hash, report.encoder_sha256)}


def _fix(encoder: str) -> str:
    return f"run `python -m components.evaluation.evaluate --encoder {encoder}`"
