"""Stage `compare`: all encoders side by side as CSV, Markdown and a page with the origin of its numbers."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from components.core.compute.provenance import git_commit
from components.core.settings import Settings
from components.core.system.checking import load_checked
from components.core.system.errors import InputError, shown_address
from components.core.system.project import in_project, start
from components.core.tables.files import file_hash
from components.core.tracking import make_client, tracked_run, training_run
from components.core.tracking.errors import SOON_S, fail_fast
from components.encoders.adapter.sidecar import Sidecar, read_sidecar
from components.evaluation.benchmarks.project import find_benchmark, table_files
from components.evaluation.report.comparison import (
    Comparison,
    best_encoder,
    compare,
    headline,
    long_table,
    markdown,
    wide_table,
    write_csv,
)
from components.evaluation.report.formats import render, write_text
from components.evaluation.report.gallery import build_gallery, read_retrieved
from components.evaluation.report.plots import Plot, bar_plots, pareto_plot
from components.evaluation.scoring.results import DEFAULT, Folders, Report, read_report, read_scores

PACKAGES = (
    "cliptune", "numpy", "torch", "torchvision", "open_clip_torch", "transformers", "safetensors", "pillow", "pyarrow",
    "mlflow", "dvc", "plotly",
)  # fmt: skip
_SECRET_KEY = re.compile(r"(^|_)(password|secret|token|api_key|credentials?)$", re.IGNORECASE)
OPEN_SIDES = 4
"""Largest number of encoders that the gallery shows; of more, all but the reference and the challenger are folded."""


def run(settings: Settings, folders: Folders = DEFAULT, track: bool = False) -> Comparison:
    """Write `comparison.csv`, `comparison.md` and `comparison.html`; returns the comparison.

    With `track` the comparison is also logged to MLflow; a failure of that is only reported.
    """
    primary = settings.promote.metric
    reports = [read_report(name, folders.metrics) for name in settings.compare_encoders]
    scores = [read_scores(report, folders.per_query) for report in reports]
    sidecars = [sidecar for report in reports if (sidecar := _sidecar(report, folders.models)) is not None]
    runs = {sidecar.name: training_run(folders.models / sidecar.name) for sidecar in sidecars}
    comparison = compare(reports, scores, settings.evaluate.bootstrap, settings.evaluate.seed)
    plots = [pareto_plot(comparison, primary), *bar_plots(comparison, primary)]
    rankings = {report.encoder: scored.rankings for report, scored in zip(reports, scores, strict=True)}
    gallery = build_gallery(settings, comparison, read_retrieved(rankings, folders), folders)
    few = len(comparison.encoders) <= OPEN_SIDES
    html = render(
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
        # Sidecars of the encoders whose weights are still those that were scored, and the runs that trained them.
        sidecars=sidecars,
        runs=runs,
        origin=trace_origin(settings, reports[0], folders),
        replaced=sorted(set(comparison.encoders) - {sidecar.name for sidecar in sidecars}),
        open_sides=comparison.encoders if few else (comparison.reference, gallery.challenger),
    )
    write_csv(comparison, folders.csv)
    write_text(folders.reports / "comparison.md", markdown(comparison, primary))
    write_text(folders.reports / "comparison.html", html)
    if track:
        log_comparison(settings, comparison, plots, runs, folders)
    return comparison


def _sidecar(report: Report, models: Path) -> Sidecar | None:
    """The sidecar of the scored encoder; None if it is gone or replaced, for instance during another training."""
    try:
        sidecar = read_sidecar(models / report.encoder)
    except InputError:
        sidecar = None
    if sidecar is None or sidecar.weights_sha256 != report.encoder_sha256:
        print(f"{models / report.encoder} is not the encoder that was scored: the page omits its origin")
        return None
    return sidecar


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


def log_comparison(
    settings: Settings, comparison: Comparison, plots: Sequence[Plot], runs: Mapping[str, str], folders: Folders
) -> str | None:
    """Log a finished comparison as a run of the dataset's experiment with the stage `compare`.

    Its tables are for MLflow's view, which puts those of several runs side by side; plots are self-contained pages.

    Returns:
        The run's id; None if MLflow failed, which is printed in one line, because the report on disk is complete.
    """
    params = settings.model_dump(mode="json", include={"compare_encoders", "evaluate", "compare", "promote"})
    try:
        inputs = {"metrics": folders.metrics}
        with fail_fast(SOON_S), tracked_run("compare", "comparison", settings, params, inputs) as run:
            run.set_tags({f"trained_by.{encoder}": run_id for encoder, run_id in runs.items() if run_id})
            for kind in ("csv", "md", "html"):
                run.log_artifact(folders.reports / f"comparison.{kind}")
            client = make_client()
            client.log_table(run.id, long_table(comparison), "comparison.json")
            client.log_table(run.id, wide_table(comparison), "encoders.json")
            for plot in plots:
                if plot.figure is not None:
                    kept = {"include_plotlyjs": True}
                    client.log_figure(run.id, plot.figure, f"plots/{plot.name}.html", save_kwargs=kept)
            return run.id
    except Exception as error:
        fault = type(error.__cause__ or error).__name__
        print(f"MLflow has no record of this comparison ({fault}); the report is complete on disk")
        return None


@in_project
def main() -> None:
    """Compare all encoders of params.yaml and print the best; `cliptune report` prints the table.

    Example: python -m components.evaluation.report.compare
    """
    settings = load_checked(entries=())
    print(headline(run(settings, track=True), settings.promote.metric))
    print(f"table: cliptune report; page: {DEFAULT.reports / 'comparison.html'}")


if __name__ == "__main__":
    start(main)
