"""The comparison as one self-contained HTML page, with the origin of its numbers."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy.typing as npt
import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from components.benchmarks.project import find_benchmark, table_files
from components.core.compute.provenance import git_commit
from components.core.settings import Settings
from components.core.tables.files import file_hash
from components.encoders.adapter.sidecar import Sidecar
from components.evaluation.results import Folders, Report
from components.report.comparison import (
    LEGEND,
    Comparison,
    best_encoder,
    delta_text,
    headline,
    mark,
    signed,
    span_text,
    value_text,
)
from components.report.page.retrieved import Gallery, build_gallery, read_retrieved
from components.report.plots import TEMPLATES, Plot, asset, bar_plots, pareto_plot, plotly_script
from components.tracking import shown_address, training_run

PACKAGES = (
    "cliptune", "numpy", "torch", "torchvision", "open_clip_torch", "transformers", "safetensors", "pillow", "pyarrow",
    "mlflow", "dvc", "plotly",
)  # fmt: skip
_SECRET_KEY = re.compile(r"(^|_)(password|secret|token|api_key|credentials?)$", re.IGNORECASE)
_SCRIPTS = ("theme.js", "pictures.js")
OPEN_SIDES = 4
"""Largest number of encoders that the gallery shows; of more, all but the reference and the challenger are folded."""


@dataclass(frozen=True)
class Origin:
    """Code, packages, data and parameters of a comparison.

    Attributes:
        commit: commit of the code, empty outside a repository.
        dirty: whether tracked files differed from the commit.
        data: file -> SHA-256.
        params: params.yaml without secrets.
    """

    commit: str = ""
    dirty: bool = False
    packages: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    protocols: Mapping[str, str] = field(default_factory=dict)
    params: str = ""


def trace_origin(settings: Settings, protocol: str, folders: Folders) -> Origin:
    """The origin of the current comparison; `protocol` lists benchmarks and versions as in an encoder's results."""
    commit = git_commit()
    tables = table_files(map(find_benchmark, settings.evaluate.benchmarks), folders.evaluation)
    return Origin(
        commit=commit.removesuffix("-dirty"),
        dirty=commit.endswith("-dirty"),
        packages={"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        data={str(path): file_hash(path) for path in (folders.test_pairs, *tables) if path.is_file()},
        protocols=dict(part.split("=", 1) for part in protocol.split() if "=" in part),
        params=yaml.safe_dump(without_secrets(settings.model_dump(mode="json", by_alias=True)), sort_keys=False),
    )


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


@dataclass(frozen=True)
class PageContent:
    """The content of the page besides the comparison.

    Attributes:
        sidecars: sidecars of the encoders whose weights are still those that were scored.
    """

    report: Report
    sidecars: Sequence[Sidecar]
    plots: Sequence[Plot]
    gallery: Gallery = field(default_factory=Gallery)
    runs: Mapping[str, str] = field(default_factory=dict)
    origin: Origin = field(default_factory=Origin)


def collect(
    settings: Settings,
    comparison: Comparison,
    reports: Sequence[Report],
    sidecars: Sequence[Sidecar],
    rankings: Mapping[str, Mapping[str, npt.NDArray[Any]]],
    folders: Folders,
) -> PageContent:
    """Read and choose the content of the page."""
    retrieved, primary = read_retrieved(rankings, folders), settings.promote.metric
    plots = [*bar_plots(comparison, primary), pareto_plot(comparison, primary)]
    return PageContent(
        report=reports[0],
        sidecars=sidecars,
        plots=plots,
        gallery=build_gallery(settings, comparison, retrieved, folders),
        runs={sidecar.name: training_run(folders.models / sidecar.name) for sidecar in sidecars},
        origin=trace_origin(settings, reports[0].protocol, folders),
    )


def page(settings: Settings, comparison: Comparison, content: PageContent) -> str:
    """The self-contained HTML of the page."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    primary = settings.promote.metric
    return environment.get_template("report.html.j2").render(
        style=asset("report.css"),
        scripts=[asset(name) for name in _SCRIPTS],
        plotly=plotly_script(),
        world=settings.dataset.name,
        encoders=comparison.encoders,
        comparison=comparison,
        primary=primary,
        primary_cells=list(comparison.cells.get(primary, {}).items()),
        best=best_encoder(comparison, primary) if primary in comparison.cells else "",
        headline=headline(comparison, primary),
        legend=LEGEND.format(reference=comparison.reference),
        value_text=value_text,
        delta_text=delta_text,
        span_text=span_text,
        mark=mark,
        signed=signed,
        benchmarks=[find_benchmark(name) for name in settings.evaluate.benchmarks],
        resamples=settings.evaluate.bootstrap,
        seed=settings.evaluate.seed,
        content=content,
        plots={plot.name: plot for plot in content.plots},
        provenance=[_provenance(sidecar, content.runs.get(sidecar.name, "")) for sidecar in content.sidecars],
        replaced=sorted(set(comparison.encoders) - {sidecar.name for sidecar in content.sidecars}),
        open_sides=_open_sides(comparison, content.gallery),
        # Row -> source and description, once for the page.
        pictures={row: [found.src, found.alt] for row, found in sorted(content.gallery.pictures.items())},
    )


def _open_sides(comparison: Comparison, gallery: Gallery) -> set[str]:
    few = len(comparison.encoders) <= OPEN_SIDES
    return set(comparison.encoders) if few else {comparison.reference, gallery.challenger}


def _provenance(sidecar: Sidecar, run: str) -> dict[str, str]:
    detail = {"settings": sidecar.settings, "data_hashes": sidecar.data_hashes}
    return {
        "name": sidecar.name,
        "method": sidecar.method,
        "model": sidecar.model,
        "weights": sidecar.weights_sha256,
        "image_tower": sidecar.image_tower_sha256,
        "commit": sidecar.git_commit.removesuffix("-dirty"),
        "dirty": "yes" if sidecar.git_commit.endswith("-dirty") else "no" if sidecar.git_commit else "",
        "run": run,
        "detail": json.dumps(detail, indent=2, sort_keys=True),
    }
