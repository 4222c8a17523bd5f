"""The comparison in MLflow, whose failure may not fail the comparison."""

from __future__ import annotations

import os
from pathlib import Path

import plotly.graph_objects as go
import pytest

from components.core.settings import Settings
from components.tracking import make_client
from components.tracking.comparison import log_comparison

pytestmark = pytest.mark.usefixtures("project")


def _log(settings: Settings, folder: Path) -> str | None:
    files = [folder / "comparison.csv", folder / "comparison.html"]
    for path in files:
        path.write_text(path.name)
    return log_comparison(
        settings,
        inputs={"metrics": files[0]},
        artifacts=files,
        tables={"encoders": {"encoder": ["base", "paraclip"], "retrieval/top": [0.25, 0.5], "delta": [None, 0.25]}},
        figures={"radar": go.Figure(go.Bar(x=[1], y=[2]))},
        runs={"base": "", "paraclip": "f" * 32},
    )


def test_a_comparison_is_a_run_with_files_table_and_plots(settings: Settings, tmp_path: Path) -> None:
    run_id = _log(settings, tmp_path)
    client = make_client()
    run = client.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert client.get_experiment(run.info.experiment_id).name == settings.dataset.name
    assert (run.data.tags["stage"], run.data.tags["trained_by.paraclip"]) == ("compare", "f" * 32)
    assert "trained_by.base" not in run.data.tags
    assert run.data.params["promote.metric"] == settings.promote.metric
    names = {entry.path for entry in client.list_artifacts(run_id)}
    assert names == {"comparison.csv", "comparison.html", "encoders.json", "plots"}
    table = client.load_table(run.info.experiment_id, "encoders.json", [run_id])
    assert table.iloc[:, :2].to_numpy().tolist() == [["base", 0.25], ["paraclip", 0.5]]
    page = Path(client.download_artifacts(run_id, "plots/radar.html")).read_text("utf-8")
    assert "<script src=" not in page


def test_an_unreachable_mlflow_is_reported_and_not_an_error(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:hidden@127.0.0.1:9")
    assert _log(settings, tmp_path) is None
    assert capsys.readouterr().out.splitlines() == [
        "MLflow has no record of this comparison (MlflowException); the report is complete on disk"
    ]
    assert "MLFLOW_HTTP_REQUEST_MAX_RETRIES" not in os.environ
