"""A tracking store for each module of these tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.tracking import PARENT_RUN, STORE


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all tests of a module: making MLflow's tables takes seconds."""
    return tmp_path_factory.mktemp("tracking")


@pytest.fixture
def project(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder is the store's, and runs go there."""
    monkeypatch.chdir(store)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store / STORE / 'mlflow.db'}")
    monkeypatch.delenv(PARENT_RUN, raising=False)
