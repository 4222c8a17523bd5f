"""A project folder with evaluated encoders and a store of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from components.core.settings import Settings
from components.encoders.adapter.encoder import Encoder
from components.tracking import STORE, make_client
from tests.support.registry_project import Project, make_project


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow database whose tables exist; making them takes seconds, so it is done once."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / STORE / 'mlflow.db'}")
        make_client().search_experiments()
    return folder / STORE / "mlflow.db"


@pytest.fixture
def project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated: Path, settings: Settings, tiny_encoder: Encoder
) -> Project:
    """A project folder, the current one, with a base encoder that scores 0.4."""
    monkeypatch.chdir(tmp_path)
    # MLflow keeps one connection per address for the life of the process, so tests must not share a relative one.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / STORE / 'mlflow.db'}")
    monkeypatch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    STORE.mkdir()
    shutil.copy(migrated, STORE / "mlflow.db")
    return make_project(settings, tiny_encoder.sidecar.architecture)
