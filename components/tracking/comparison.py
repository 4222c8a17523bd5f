"""Logs a comparison to MLflow; a failure of MLflow is only printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.core.settings import Settings
from components.tracking import make_client, tracked_run
from components.tracking.errors import SOON_S, fail_fast

if TYPE_CHECKING:
    import plotly.graph_objects as go


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
            run.set_tags({f"trained_by.{encoder}": run_id for encoder, run_id in runs.items() if run_id})
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
