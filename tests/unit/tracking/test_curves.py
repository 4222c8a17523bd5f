"""The comparison in MLflow, and training curves from there; neither may fail the comparison."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from components.core.settings import Settings
from components.tracking import curves as report
from components.tracking import make_client, tracked_run
from components.tracking.curves import log_comparison, training_curves

pytestmark = pytest.mark.usefixtures("project")


def _encoder(models: Path, name: str, run_id: str) -> None:
    (models / name).mkdir(parents=True)
    (models / name / "run.json").write_text(json.dumps({"run_id": run_id}))


def test_curves_come_from_the_training_runs(settings: Settings, tmp_path: Path) -> None:
    with tracked_run("train", "long", settings, {}, {}) as run:
        for step in range(1000):
            run.log_metrics({"loss/total": 1000.0 - step, "train/lr": 0.1}, step)
    with tracked_run("train", "bare", settings, {}, {}) as bare:
        pass
    for name, run_id in (("long", run.id), ("bare", bare.id), ("elsewhere", "0" * 32)):
        _encoder(tmp_path, name, run_id)
    curves = training_curves(tmp_path, ["base", "long", "bare", "elsewhere"])
    assert {name: list(found) for name, found in curves.found.items()} == {"long": ["loss/total"]}
    points = curves.found["long"]["loss/total"]
    assert (len(points), points[0], points[-1]) == (300, (0, 1000.0), (999, 1.0))
    assert curves.missing == {
        "base": "no tracked run trained it",
        "bare": "its run has no losses",
        "elsewhere": "its run is not in this MLflow store",
    }
    assert curves.runs["long"] == run.id


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
        runs={"paraclip": "f" * 32},
    )


def test_a_comparison_is_a_run_with_files_table_and_plots(settings: Settings, tmp_path: Path) -> None:
    run_id = _log(settings, tmp_path)
    client = make_client()
    run = client.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert client.get_experiment(run.info.experiment_id).name == settings.dataset.name
    assert (run.data.tags["stage"], run.data.tags["trained_by.paraclip"]) == ("compare", "f" * 32)
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
    for name in ("paraclip", "semclip"):
        _encoder(tmp_path, name, "0" * 32)
    curves = training_curves(tmp_path, ["paraclip", "semclip"])
    assert curves.missing == dict.fromkeys(["paraclip", "semclip"], "MLflow gave no answer (MlflowException)")
    assert "MLFLOW_HTTP_REQUEST_MAX_RETRIES" not in os.environ


def test_without_tracked_encoders_mlflow_gets_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise AssertionError("a request")

    monkeypatch.setattr(report, "make_client", fail)
    _encoder(tmp_path, "odd", "x")
    (tmp_path / "odd" / "run.json").write_text("[]")
    assert training_curves(tmp_path, ["base", "odd"]).found == {}
