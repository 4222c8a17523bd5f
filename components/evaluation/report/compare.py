"""Stage `compare`: all encoders side by side as CSV, Markdown and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from components.core.settings import Settings
from components.core.system.checking import load_checked
from components.core.system.errors import InputError
from components.core.system.project import in_project, start
from components.core.tracking import make_client, tracked_run, training_run
from components.core.tracking.errors import SOON_S, fail_fast
from components.encoders.adapter.sidecar import Sidecar, read_sidecar
from components.evaluation.report.comparison import (
    Comparison,
    compare,
    headline,
    long_table,
    markdown,
    wide_table,
    write_csv,
)
from components.evaluation.report.formats import write_text
from components.evaluation.report.gallery import build_gallery, read_retrieved
from components.evaluation.report.page import page, trace_origin
from components.evaluation.report.plots import Plot, bar_plots, pareto_plot
from components.evaluation.scoring.results import DEFAULT, Folders, Report, read_report, read_scores


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
