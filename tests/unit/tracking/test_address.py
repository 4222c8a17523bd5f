"""Which store a client talks to, and how its address is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.tracking import STORE, make_client, shown_address


def test_each_folder_has_a_store_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        make_client().create_experiment("world")
        assert (tmp_path / name / STORE / "mlflow.db").is_file()


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("postgresql://me:s3cret@host:5432/mlflow", "postgresql://me:***@host:5432/mlflow"),
        ("https://me:s3cret@host", "https://me:***@host"),
        ("postgresql://me@host/mlflow?password=s3cret&ssl=on", "postgresql://me@host/mlflow?password=***&ssl=on"),
        ("https://host:5000/a@b", "https://host:5000/a@b"),
        ("http://host:5000 is away, ask a@b", "http://host:5000 is away, ask a@b"),
        ("sqlite:///mlruns/mlflow.db", "sqlite:///mlruns/mlflow.db"),
    ],
)
def test_passwords_are_not_shown(uri: str, shown: str) -> None:
    assert shown_address(uri) == shown
