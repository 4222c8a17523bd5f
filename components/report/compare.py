"""Stage `compare`: all encoders side by side as CSV, Markdown and a page."""

from __future__ import annotations

from pathlib import Path

from components.core.settings import Settings
from components.core.system.checking import load_checked
from components.core.system.errors import InputError
from components.core.system.project import in_project, start
from components.encoders.adapter.sidecar import Sidecar, read_sidecar
from components.evaluation.results import DEFAULT, Folders, Report, read_report, read_scores
from components.report.comparison import Comparison, compare, headline, long_table, markdown, wide_table, write_csv
from components.report.formats import write_text
from components.report.page.page import page, trace_origin
from components.report.page.retrieved import build_gallery, read_retrieved
from components.report.plots import bar_plots, pareto_plot
from components.tracking import training_run
from components.tracking.comparison import log_comparison


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
    html = page(
        settings,
        comparison,
        plots=plots,
        gallery=build_gallery(settings, comparison, read_retrieved(rankings, folders), folders),
        sidecars=sidecars,
        runs=runs,
        origin=trace_origin(settings, reports[0], folders),
    )
    write_csv(comparison, folders.csv)
    write_text(folders.reports / "comparison.md", markdown(comparison, primary))
    write_text(folders.reports / "comparison.html", html)
    if track:
        log_comparison(
            settings,
            inputs={"metrics": folders.metrics},
            artifacts=[folders.reports / f"comparison.{kind}" for kind in ("csv", "md", "html")],
            tables={"comparison": long_table(comparison), "encoders": wide_table(comparison)},
            figures={plot.name: plot.figure for plot in plots if plot.figure is not None},
            runs=runs,
        )
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


@in_project
def main() -> None:
    """Compare all encoders of params.yaml and print the best; `cliptune report` prints the table.

    Example: python -m components.report.compare
    """
    settings = load_checked(entries=())
    print(headline(run(settings, track=True), settings.promote.metric))
    print(f"table: cliptune report; page: {DEFAULT.reports / 'comparison.html'}")


if __name__ == "__main__":
    start(main)
