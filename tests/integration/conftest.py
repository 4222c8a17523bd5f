"""Real servers for tests, started on free ports of 127.0.0.1 and stopped afterwards."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.support.restartable_s3 import RestartableS3, restartable_s3


@pytest.fixture(scope="session")
def s3_server() -> Iterator[RestartableS3]:
    """SeaweedFS with its S3 gateway; its data goes when the tests end."""
    # Every bucket takes seven volumes at its first object.
    with restartable_s3(volumes=1000) as server:
        yield server


@pytest.fixture
def s3(s3_server: RestartableS3, monkeypatch: pytest.MonkeyPatch) -> RestartableS3:
    """The S3 server, with the environment of this test set to it."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server


@pytest.fixture
def bucket(s3: RestartableS3) -> str:
    """A new bucket."""
    name = f"test-{secrets.token_hex(6)}"
    s3.client().create_bucket(Bucket=name)
    return name
