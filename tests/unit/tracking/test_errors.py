"""Errors of MLflow become one line without users and passwords, and errors of others stay."""

from __future__ import annotations

import pytest
from mlflow.exceptions import MlflowException

from components.core.errors import InputError
from components.tracking.errors import explained, shown_address


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("postgresql://me:s3cret@host:5432/mlflow", "postgresql://***@host:5432/mlflow"),
        ("https://me:s3@cret@host", "https://***@host"),
        ("https://t0ken@host", "https://***@host"),
        ("postgresql://host/mlflow?password=s3cret&ssl=on", "postgresql://host/mlflow?password=***&ssl=on"),
        ("https://host/hook?access_token=s3cret", "https://host/hook?access_token=***"),
        ("https://host:5000/a@b", "https://host:5000/a@b"),
        ("http://host:5000 is away, ask a@b", "http://host:5000 is away, ask a@b"),
        ("sqlite:///mlruns/mlflow.db", "sqlite:///mlruns/mlflow.db"),
    ],
)
def test_passwords_are_not_shown(uri: str, shown: str) -> None:
    assert shown_address(uri) == shown


def test_an_error_is_one_line_and_others_pass() -> None:
    line = r"^MLflow: API request to http://\*\*\*@host failed: correct MLFLOW_TRACKING_URI"
    with pytest.raises(InputError, match=line), explained():
        raise MlflowException("API request to http://bob:s3cr3t@host\nfailed")
    with pytest.raises(ValueError, match="another"), explained():
        raise ValueError("another")
