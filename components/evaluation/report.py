"""The comparison as one self-contained HTML page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from components.encoders.sidecar import Sidecar
from components.evaluation import plots, wording
from components.evaluation.benchmarks import find_benchmark
from components.evaluation.comparison import Comparison, best_encoder
from components.evaluation.gallery import Gallery
from components.evaluation.results import Report
from components.settings import Settings

_TEMPLATES = Path(__file__).parent / "templates"


def page(
    settings: Settings,
    comparison: Comparison,
    report: Report,
    sidecars: Sequence[Sidecar],
    gallery: Gallery,
) -> str:
    """The page's HTML, which needs nothing beyond itself; `report` is any encoder's, for what all share."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    primary = settings.promote.primary
    return environment.get_template("report.html.j2").render(
        style=_asset("report.css"),
        theme=_asset("theme.js"),
        plotly=Markup(plots.plotly_script()),
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
        plots=_plots(comparison, primary),
        benchmarks=[find_benchmark(name) for name in settings.evaluate.benchmarks],
        resamples=settings.evaluate.bootstrap,
        seed=settings.evaluate.seed,
        protocol=report.protocol,
        data_hash=report.data_hash,
        provenance=[_provenance(sidecar) for sidecar in sidecars],
        gallery=gallery,
    )


def _plots(comparison: Comparison, primary: str) -> list[dict[str, str]]:
    wanted = [
        ("Metrics over all queries, with 95% intervals", plots.main_metrics(comparison, primary), plots.short_label),
        (f"{primary} by group of queries, with 95% intervals", plots.by_group(comparison, primary), plots.group_label),
    ]
    return [
        {"title": title, "html": plots.bars(comparison, names, [label(name) for name in names], f"plot-{number}")}
        for number, (title, names, label) in enumerate(wanted)
        if names
    ]


def _provenance(sidecar: Sidecar) -> dict[str, str]:
    detail = {"settings": sidecar.settings, "data_hashes": sidecar.data_hashes}
    return {
        "name": sidecar.name,
        "method": sidecar.method,
        "model": sidecar.model,
        "weights_sha256": sidecar.weights_sha256,
        "image_tower_sha256": sidecar.image_tower_sha256,
        "git_commit": sidecar.git_commit,
        "detail": json.dumps(detail, indent=2, sort_keys=True),
    }


def _asset(name: str) -> Markup:
    """A file of the page's own that is to stand in it as it is."""
    return Markup((_TEMPLATES / name).read_text("utf-8"))
