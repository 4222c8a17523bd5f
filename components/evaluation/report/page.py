"""The comparison as one self-contained HTML page, with the origin of its numbers."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import yaml

from components.core.compute.provenance import git_commit
from components.core.settings import Settings
from components.core.system.errors import shown_address
from components.core.tables.files import file_hash
from components.encoders.adapter.sidecar import Sidecar
from components.evaluation.benchmarks.project import find_benchmark, table_files
from components.evaluation.report.comparison import Comparison, best_encoder, headline
from components.evaluation.report.formats import render
from components.evaluation.report.gallery import Gallery
from components.evaluation.report.plots import Plot
from components.evaluation.scoring.results import Folders, Report

PACKAGES = (
    "cliptune", "numpy", "torch", "torchvision", "open_clip_torch", "transformers", "safetensors", "pillow", "pyarrow",
    "mlflow", "dvc", "plotly",
)  # fmt: skip
_SECRET_KEY = re.compile(r"(^|_)(password|secret|token|api_key|credentials?)$", re.IGNORECASE)
OPEN_SIDES = 4
"""Largest number of encoders that the gallery shows; of more, all but the reference and the challenger are folded."""


def trace_origin(settings: Settings, report: Report, folders: Folders) -> dict[str, Any]:
    """Code, packages, data and parameters of the comparison; `report` is of any of its encoders."""
    tables = table_files(map(find_benchmark, settings.evaluate.benchmarks), folders.evaluation)
    return {
        "commit": git_commit(),
        "packages": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "data": {str(path): file_hash(path) for path in (folders.test_pairs, *tables) if path.is_file()},
        "data_hash": report.data_hash,
        "protocols": dict(part.split("=", 1) for part in report.protocol.split() if "=" in part),
        "params": yaml.safe_dump(without_secrets(settings.model_dump(mode="json", by_alias=True)), sort_keys=False),
    }


def without_secrets(value: Any, key: str = "") -> Any:
    """A copy with `***` for secrets: values of keys such as `password`, and passwords in URLs."""
    if isinstance(value, Mapping):
        return {name: without_secrets(entry, str(name)) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(entry, key) for entry in value]
    if isinstance(value, str):
        return "***" if value and _SECRET_KEY.search(key) else shown_address(value)
    return value


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def page(
    settings: Settings,
    comparison: Comparison,
    *,
    plots: Sequence[Plot],
    gallery: Gallery,
    sidecars: Sequence[Sidecar],
    runs: Mapping[str, str],
    origin: Mapping[str, Any],
) -> str:
    """The self-contained HTML of the page.

    Args:
        sidecars: sidecars of the encoders whose weights are still those that were scored.
        runs: their names -> id of the MLflow run that trained it, empty if there is none.
    """
    primary = settings.promote.metric
    few = len(comparison.encoders) <= OPEN_SIDES
    return render(
        "report.html.j2",
        dataset=settings.dataset.name,
        primary=primary,
        evaluate=settings.evaluate,
        comparison=comparison,
        primary_cells=comparison.cells.get(primary, {}),
        best=best_encoder(comparison, primary),
        headline=headline(comparison, primary),
        overall=comparison.table(comparison.names(grouped=False)),
        grouped=comparison.table(comparison.names(grouped=True)),
        benchmarks=[find_benchmark(name) for name in settings.evaluate.benchmarks],
        plots=plots,
        gallery=gallery,
        sidecars=sidecars,
        runs=runs,
        origin=origin,
        replaced=sorted(set(comparison.encoders) - {sidecar.name for sidecar in sidecars}),
        open_sides=comparison.encoders if few else (comparison.reference, gallery.challenger),
    )
