"""Finds the MLflow runs of a stage."""

from __future__ import annotations

from mlflow.entities import Run

from components.core.tracking import make_client


def find_runs(experiment: str, stage: str) -> list[Run]:
    """The finished runs of `stage`."""
    client = make_client()
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    chosen = f"tags.stage = '{stage}' and attributes.status = 'FINISHED'"
    return list(client.search_runs([found.experiment_id], chosen))
