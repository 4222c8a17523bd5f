"""Which store a client talks to."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from components.core.settings import Settings
from components.tracking import STORE, make_client, tracked_run


def test_each_folder_has_a_store_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        make_client().create_experiment("world")
        assert (tmp_path / name / STORE / "mlflow.db").is_file()


def test_an_experiment_in_a_temporary_copy_has_the_store_of_its_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings, mlflow_database: Path
) -> None:
    """As `dvc exp run --temp` makes it, and deletes it when it ends."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    copy = tmp_path / ".dvc" / "tmp" / "exps" / "standalone" / "tmpx"
    copy.mkdir(parents=True)
    (tmp_path / STORE).mkdir()
    shutil.copy(mlflow_database, tmp_path / STORE)
    monkeypatch.chdir(copy)
    with tracked_run("train", "one", settings, {}, {}) as run:
        run.log_artifact(Path(__file__))
    shutil.rmtree(copy)
    monkeypatch.chdir(tmp_path)
    assert [found.path for found in make_client().list_artifacts(run.id)] == [Path(__file__).name]
