"""Values per query on disk, as safetensors: what paired tests, plots and the gallery read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from components.benchmarks.scores import Correlation, Scores
from components.core.errors import InputError
from components.core.files import atomic_file

_CORRELATIONS: tuple[Literal["spearman", "pearson"], ...] = ("spearman", "pearson")


def write_values(scores: Scores, path: Path, evaluation: str) -> None:
    """Write the values whole or not at all, with the hash of the evaluation that they belong to."""
    arrays: dict[str, npt.NDArray[Any]] = {f"values/{name}": values for name, values in scores.values.items()}
    arrays |= {f"strata/{name}": groups for name, groups in scores.strata.items()}
    arrays |= {f"pictures/{name}": found for name, found in scores.pictures.items()}
    arrays |= {f"rankings/{name}": ranking.astype(np.int32) for name, ranking in scores.rankings.items()}
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
    return Scores(
        found.get("values", {}),
        found.get("strata", {}),
        found.get("rankings", {}),
        correlations,
        pictures=found.get("pictures", {}),
    )
