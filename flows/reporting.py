"""Artifacts on a flow run's page: the table of results, the decision, links."""

from __future__ import annotations

from pathlib import Path

from prefect import task
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from components.evaluation.results import DEFAULT, Report, read_report
from components.registry.decision import Decision
from components.report.comparison import read_csv

REPORTS = Path("reports")


@task(cache_policy=NO_CACHE)
def show_results() -> None:
    """Artifacts of the comparison: the table `results-table` and a link to the page."""
    comparison = read_csv(REPORTS / "comparison.csv")
    rows = []
    for metric, cells in comparison.cells.items():
        if metric.count("/") > 1:
            continue
        row: dict[str, str] = {"metric": metric}
        for encoder, cell in cells.items():
            value = cell.value
            row[encoder] = f"{value.value:.4f} [{value.low:.4f}, {value.high:.4f}]"
        rows.append(row)
    create_table_artifact(rows, key="results-table", description="Every encoder's metrics with 95% intervals.")
    page = (REPORTS / "comparison.html").resolve()
    create_link_artifact(page.as_uri(), link_text=str(page), key="comparison", description="The report as a page.")


@task(cache_policy=NO_CACHE)
def show_scores(encoders: list[str]) -> None:
    """An artifact of the results of some encoders, where not all have any: `results-table`."""
    reports = [read_report(name, DEFAULT.metrics) for name in encoders]
    rows = [
        {"metric": metric} | {report.encoder: _text(report, metric) for report in reports}
        for metric in reports[0].metrics
        if metric.count("/") == 1 and all(metric in report.metrics for report in reports)
    ]
    create_table_artifact(rows, key="results-table", description="Metrics with 95% intervals; not compared.")


@task(cache_policy=NO_CACHE)
def show_decision(decision: Decision, note: str = "") -> None:
    """An artifact of this run's decision, with a person's answer to it: `promotion-decision`."""
    text = decision.markdown() + (f"\n{note}\n" if note else "")
    create_markdown_artifact(text, key="promotion-decision", description=decision.headline)


def _text(report: Report, metric: str) -> str:
    found = report.metrics[metric]
    return f"{found.value:.4f} [{found.span[0]:.4f}, {found.span[1]:.4f}]"
