"""Reads loss curves from MLflow for the report, and logs the comparison; failures of MLflow are only warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.core.settings import Settings
from components.tracking import make_client, tracked_run, training_run
from components.tracking.errors import SOON_S, fail_fast

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from mlflow import MlflowClient

Points = list[tuple[int, float]]
CURVES = ("loss/", "validation/")
"""Prefixes of the metrics that are plotted."""
_LONGEST = 300
"""Largest number of points of a plotted curve."""


@dataclass(frozen=True)
class Curves:
    """Metrics of the training runs.

    Attributes:
        found: encoder -> metric -> (step, value), in order of steps.
    """

    found: dict[str, dict[str, Points]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)


def training_curves(models: Path, encoders: Sequence[str]) -> Curves:
    """Losses and validation metrics of the runs that trained `encoders`, if MLflow has them."""
    curves = Curves(runs={name: run_id for name in encoders if (run_id := training_run(models / name))})
    curves.missing.update({name: "no tracked run trained it" for name in encoders if name not in curves.runs})
    if not curves.runs:
        return curves
    with fail_fast(SOON_S):
        try:
            client = make_client()
            for encoder, run_id in curves.runs.items():
                _add(curves, client, encoder, run_id)
        # An unreachable store fails with errors of MLflow, its database or the network.
        except Exception as error:
            left = [encoder for encoder in curves.runs if encoder not in curves.found | curves.missing]
            curves.missing.update(
                dict.fromkeys(left, f"MLflow gave no answer ({type(error.__cause__ or error).__name__})")
            )
    return curves


def _add(curves: Curves, client: MlflowClient, encoder: str, run_id: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        names = [name for name in client.get_run(run_id).data.metrics if name.startswith(CURVES)]
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        curves.missing[encoder] = "its run is not in this MLflow store"
        return
    points = {
        name: _thinned(sorted((metric.step, metric.value) for metric in client.get_metric_history(run_id, name)))
        for name in sorted(names)
    }
    if points:
        curves.found[encoder] = points
    else:
        curves.missing[encoder] = "its run has no losses"


def _thinned(points: Points) -> Points:
    """At most `_LONGEST` evenly spaced points, including the first and the last."""
    if len(points) <= _LONGEST:
        return points
    return [points[round(place * (len(points) - 1) / (_LONGEST - 1))] for place in range(_LONGEST)]


def log_comparison(
    settings: Settings,
    inputs: Mapping[str, Path],
    artifacts: Sequence[Path],
    tables: Mapping[str, Mapping[str, Sequence[Any]]],
    figures: Mapping[str, go.Figure],
    runs: Mapping[str, str],
) -> str | None:
    """Log a finished comparison as a run of the world's experiment with the stage `compare`.

    Args:
        tables: name -> column -> values; MLflow's view of tables puts those of several runs side by side.
        figures: name -> plot, each logged as a self-contained page.

    Returns:
        The run's id; None if MLflow failed, which is printed in one line, because the report on disk is complete.
    """
    params = settings.model_dump(mode="json", include={"compare_encoders", "evaluate", "compare", "promote"})
    try:
        with fail_fast(SOON_S), tracked_run("compare", "comparison", settings, params, inputs) as run:
            run.set_tags({f"trained_by.{encoder}": run_id for encoder, run_id in runs.items()})
            client = make_client()
            for path in artifacts:
                run.log_artifact(path)
            for name, table in tables.items():
                client.log_table(run.id, {column: list(values) for column, values in table.items()}, f"{name}.json")
            for name, figure in figures.items():
                page = f"plots/{name}.html"
                client.log_figure(run.id, figure, page, save_kwargs={"include_plotlyjs": True})
            return run.id
    except Exception as error:
        fault = type(error.__cause__ or error).__name__
        print(f"MLflow has no record of this comparison ({fault}); the report is complete on disk")
        return None
