"""Which store a client talks to."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.tracking import STORE, make_client


def test_each_folder_has_a_store_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        make_client().create_experiment("world")
        assert (tmp_path / name / STORE / "mlflow.db").is_file()
