"""Records with a flow run and its MLflow runs where results came from: dvc.lock, commit, whether git was clean."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

from prefect import get_client, task
from prefect.artifacts import create_link_artifact, create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run

from components.core.files import file_hash
from components.core.provenance import LOCK, git_commit
from components.registry.lineage import experiment_of, record_lock
from components.tracking import tracking_uri

DIRTY = "git-dirty"
"""Tag of a flow run whose checkout had changes that no commit holds."""
PAGES = "CLIPTUNE_MLFLOW_PAGES"
"""Environment variable: address of the MLflow pages where the tracking URI is none (the stack's SQLite file)."""
MODELS = Path("models")


@task(cache_policy=NO_CACHE)
def record_state(encoders: list[str]) -> None:
    """Keep dvc.lock with the flow run (artifact `dvc-lock`) and with the MLflow runs that trained `encoders`.

    Each of those runs gets a link (artifact `mlflow-<encoder>`). A checkout that git does not call clean marks all of
    them, by the tag `git-dirty` here and `flow_git_dirty` in MLflow.
    """
    commit = git_commit()
    dirty = commit.endswith("-dirty")
    if dirty:
        _mark(UUID(str(flow_run.id)))
    if LOCK.is_file():
        about = f"commit `{commit or 'none'}`, sha256 of dvc.lock `{file_hash(LOCK)}`"
        text = f"{about}\n\n```yaml\n{LOCK.read_text('utf-8')}\n```\n"
        create_markdown_artifact(text, key="dvc-lock", description=f"dvc.lock after this run{', dirty' * dirty}.")
    facts = {"prefect_flow_run": str(flow_run.id), "flow_git_commit": commit, "flow_git_dirty": str(dirty).lower()}
    for encoder in encoders:
        if run_id := record_lock(MODELS / encoder, facts):
            _link(encoder, run_id)


def _mark(run: UUID) -> None:
    with get_client(sync_client=True) as client:
        tags = client.read_flow_run(run).tags
        if DIRTY not in tags:
            client.update_flow_run(run, tags=[*tags, DIRTY])


def _link(encoder: str, run_id: str) -> None:
    uri = _public(tracking_uri())
    pages = uri if uri.startswith("http") else os.environ.get(PAGES, "")
    key = f"mlflow-{encoder.lower().replace('_', '-')}"
    about = f"The MLflow run that trained {encoder}."
    if pages:
        address = f"{pages.rstrip('/')}/#/experiments/{experiment_of(run_id)}/runs/{run_id}"
        create_link_artifact(address, link_text=run_id, key=key, description=about)
    else:
        create_markdown_artifact(f"run `{run_id}` in `{uri}`", key=key, description=about)


def _public(uri: str) -> str:
    """The tracking URI without the user and password that it may carry."""
    scheme, mark, rest = uri.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"
