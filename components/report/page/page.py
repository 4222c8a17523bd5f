"""The comparison as one self-contained HTML page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from components.benchmarks.embedded import find_benchmark
from components.core.settings import Settings
from components.encoders.adapter.sidecar import Sidecar
from components.evaluation.results import Folders, Report
from components.report.comparison import wording
from components.report.comparison.comparison import Comparison, best_encoder
from components.report.comparison.origins import Origin, trace_origin
from components.report.page.failures import Explorer, build_explorer
from components.report.page.gallery import Gallery, build_gallery
from components.report.page.retrieved import read_retrieved
from components.report.plots import Plot, all_plots, plotly_script
from components.tracking.curves import Curves, training_curves

_TEMPLATES = Path(__file__).parent / "templates"
_SCRIPTS = ("theme.js", "pictures.js", "chooser.js", "failures.js")
OPEN_SIDES = 4
"""Up to so many encoders the gallery shows at once; of more, all but the reference and the challenger are folded."""


@dataclass(frozen=True)
class Content:
    """What the page shows besides the comparison's numbers.

    Attributes:
        report: any encoder's results, for what all share.
        sidecars: of all encoders.
        plots: in the order shown.
        gallery: queries with what every encoder finds.
        explorer: queries that differ most.
        runs: encoder -> the MLflow run that trained it.
        origin: code, packages, data and parameters.
    """

    report: Report
    sidecars: Sequence[Sidecar]
    plots: Sequence[Plot]
    gallery: Gallery = field(default_factory=Gallery)
    explorer: Explorer = field(default_factory=Explorer)
    runs: Mapping[str, str] = field(default_factory=dict)
    origin: Origin = field(default_factory=Origin)


def collect(
    settings: Settings,
    comparison: Comparison,
    reports: Sequence[Report],
    sidecars: Sequence[Sidecar],
    rankings: Mapping[str, Mapping[str, npt.NDArray[Any]]],
    folders: Folders,
) -> Content:
    """Read and choose everything that the page shows.

    Raises:
        InputError: rankings, tables or images are missing, broken, or do not fit each other.
    """
    retrieved = read_retrieved(rankings, folders)
    curves: Curves = training_curves(folders.models, comparison.encoders)
    return Content(
        report=reports[0],
        sidecars=sidecars,
        plots=all_plots(comparison, settings.promote.primary, curves),
        gallery=build_gallery(settings, comparison, retrieved, folders),
        explorer=build_explorer(retrieved, folders),
        runs=curves.runs,
        origin=trace_origin(settings, reports[0].protocol, folders),
    )


def page(settings: Settings, comparison: Comparison, content: Content) -> str:
    """The page's HTML, which needs nothing beyond itself."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    primary = settings.promote.primary
    return environment.get_template("report.html.j2").render(
        style=_asset("report.css"),
        scripts=[_asset(name) for name in _SCRIPTS],
        plotly=Markup(plotly_script()),
        world=settings.world.name,
        encoders=comparison.encoders,
        comparison=comparison,
        primary=primary,
        primary_cells=list(comparison.cells.get(primary, {}).items()),
        best=best_encoder(comparison, primary) if primary in comparison.cells else "",
        headline=wording.headline(comparison, primary),
        legend=wording.LEGEND.format(reference=comparison.reference),
        value_text=wording.value_text,
        delta_text=wording.delta_text,
        span_text=wording.span_text,
        mark=wording.mark,
        signed=wording.signed,
        benchmarks=[find_benchmark(name) for name in settings.evaluate.benchmarks],
        resamples=settings.evaluate.bootstrap,
        seed=settings.evaluate.seed,
        content=content,
        plots={plot.name: plot for plot in content.plots},
        provenance=[_provenance(sidecar, content.runs.get(sidecar.name, "")) for sidecar in content.sidecars],
        open_sides=_open_sides(comparison, content.gallery),
        pictures=_pictures(content),
    )


def _open_sides(comparison: Comparison, gallery: Gallery) -> set[str]:
    if len(comparison.encoders) <= OPEN_SIDES:
        return set(comparison.encoders)
    return {comparison.reference, gallery.challenger}


def _pictures(content: Content) -> dict[int, list[str]]:
    """Gallery row -> source and description, once for the whole page; the gallery's are larger than the explorer's."""
    merged = {**content.explorer.pictures, **content.gallery.pictures}
    return {row: [picture.src, picture.alt] for row, picture in sorted(merged.items())}


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


def _asset(name: str) -> Markup:
    """A file of the page's own that is to stand in it as it is."""
    return Markup((_TEMPLATES / name).read_text("utf-8"))
