"""Artifacts on a flow run's page in Prefect: results, the decision, dvc.lock and MLflow runs."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

from prefect import get_client, task
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run

from components.core.compute.provenance import LOCK, git_commit
from components.core.tables.files import file_hash
from components.core.tracking import tracking_uri
from components.evaluation.report.comparison import read_csv
from components.evaluation.scoring.results import DEFAULT, read_report
from components.registry.decision import Decision
from components.registry.evidence import record_lock

DIRTY = "git-dirty"
"""Tag of a flow run whose checkout had uncommitted changes."""
PAGES = "CLIPTUNE_MLFLOW_PAGES"
"""Environment variable: address of the MLflow pages where the tracking URI is a file (the stack's SQLite file)."""
MODELS, REPORTS = Path("models"), Path("reports")


@task(cache_policy=NO_CACHE)
def show_results() -> None:
    """Artifacts of the comparison: the table `results-table` and a link to the report."""
    results = {
        metric: {name: (cell.value.value, cell.value.low, cell.value.high) for name, cell in cells.items()}
        for metric, cells in read_csv(REPORTS / "comparison.csv").cells.items()
    }
    _show_metrics(results, "Every encoder's metrics with 95% intervals.")
    page = (REPORTS / "comparison.html").resolve()
    create_link_artifact(page.as_uri(), link_text=str(page), key="comparison", description="The report as a page.")


@task(cache_policy=NO_CACHE)
def show_scores(encoders: list[str]) -> None:
    """The table `results-table` of some encoders, for a run without a comparison."""
    reports = {name: read_report(name, DEFAULT.metrics).metrics for name in encoders}
    common = [metric for metric in reports[encoders[0]] if all(metric in metrics for metrics in reports.values())]
    results = {
        metric: {name: (metrics[metric].value, *metrics[metric].span) for name, metrics in reports.items()}
        for metric in common
    }
    _show_metrics(results, "Metrics with 95% intervals; not compared.")


def _show_metrics(results: dict[str, dict[str, tuple[float, float, float]]], description: str) -> None:
    """The table `results-table` of metrics over all queries: metric -> encoder -> value and interval."""
    rows = [
        {"metric": metric} | {name: f"{value:.4f} [{low:.4f}, {high:.4f}]" for name, (value, low, high) in row.items()}
        for metric, row in results.items()
        if metric.count("/") <= 1
    ]
    create_table_artifact(rows, key="results-table", description=description)


@task(cache_policy=NO_CACHE)
def show_decision(decision: Decision, note: str = "") -> None:
    """The artifact `promotion-decision`: the decision of this run, and the answer of the approving person."""
    text = decision.markdown() + (f"\n{note}\n" if note else "")
    create_markdown_artifact(text, key="promotion-decision", description=decision.headline)


@task(cache_policy=NO_CACHE)
def record_state(encoders: list[str]) -> None:
    """Store dvc.lock with the flow run (artifact `dvc-lock`) and with the MLflow runs that trained `compare_encoders`.

    Each of those runs gets a link (artifact `mlflow-<encoder>`). If the checkout has uncommitted changes, all of them
    are tagged: `git-dirty` in Prefect, `flow_git_dirty` in MLflow.
    """
    commit = git_commit()
    dirty = commit.endswith("-dirty")
    if dirty:
        _tag_dirty(UUID(str(flow_run.id)))
    if LOCK.is_file():
        about = f"commit `{commit or 'none'}`, sha256 of dvc.lock `{file_hash(LOCK)}`"
        text = f"{about}\n\n```yaml\n{LOCK.read_text('utf-8')}\n```\n"
        create_markdown_artifact(text, key="dvc-lock", description=f"dvc.lock after this run{', dirty' * dirty}.")
    facts = {"prefect_flow_run": str(flow_run.id), "flow_git_commit": commit, "flow_git_dirty": str(dirty).lower()}
    for encoder in encoders:
        if recorded := record_lock(MODELS / encoder, facts):
            _link(encoder, *recorded)


def _tag_dirty(run: UUID) -> None:
    with get_client(sync_client=True) as client:
        tags = client.read_flow_run(run).tags
        if DIRTY not in tags:
            client.update_flow_run(run, tags=[*tags, DIRTY])


def _link(encoder: str, run_id: str, experiment: str) -> None:
    # The tracking URI may carry a user and a password.
    scheme, mark, rest = tracking_uri().partition("://")
    uri = f"{scheme}{mark}{rest.rpartition('@')[2]}"
    pages = uri if uri.startswith("http") else os.environ.get(PAGES, "")
    key = f"mlflow-{encoder.lower().replace('_', '-')}"
    about = f"The MLflow run that trained {encoder}."
    if pages:
        address = f"{pages.rstrip('/')}/#/experiments/{experiment}/runs/{run_id}"
        create_link_artifact(address, link_text=run_id, key=key, description=about)
    else:
        create_markdown_artifact(f"run `{run_id}` in `{uri}`", key=key, description=about)
