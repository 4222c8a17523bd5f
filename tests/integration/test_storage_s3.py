"""Files and buckets in a real S3 server: whole, and sent once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from components.cli import app
from components.core.pictures.storage import S3, upload_pairs
from components.core.system.errors import InputError

pytestmark = pytest.mark.integration
LARGE = 40 << 20
"""Bytes of a file that travels in several parts."""


@pytest.mark.parametrize("size", [0, 1000, LARGE + 7])
def test_a_file_is_sent_once_and_whole(bucket: str, size: int, tmp_path: Path) -> None:
    url, path = f"s3://{bucket}/file", tmp_path / "file"
    path.write_bytes(os.urandom(size))
    sizes: list[int] = []
    assert S3().put(path, url, sizes.append) == size
    assert (sum(sizes), S3().put(path, url)) == (size, 0)
    path.write_bytes(os.urandom(size + 1))
    assert S3().put(path, url) == size + 1
    assert S3().read(url) == path.read_bytes()


def test_file_that_changes_during_the_upload_is_refused(bucket: str, tmp_path: Path) -> None:
    path = tmp_path / "grows"
    path.write_bytes(os.urandom(LARGE))

    def change(_size: int) -> None:
        with path.open("ab") as stream:
            stream.write(b"x")

    with pytest.raises(InputError, match="changed while it was uploaded"):
        S3().put(path, f"s3://{bucket}/grows", change)
    assert not S3().exists(f"s3://{bucket}/grows")


def test_buckets_are_made_once(s3: Any, bucket: str) -> None:
    url = f"s3://{bucket}-new"
    done = S3().make_bucket(url, versions=True)
    assert done == [f"made {url}", "old versions are kept", "half uploads are removed after 7 days"]
    assert S3().make_bucket(url)[0] == f"{url} exists"
    with pytest.raises(InputError, match="is not a bucket name"):
        S3().make_bucket("s3://b")


@pytest.mark.parametrize(
    ("environment", "bucket_name", "message"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "planted-secret"}, "", "may not be made"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "", "needs credentials"),
        ({"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"}, "", "is out of reach"),
        ({"AWS_ENDPOINT_URL_S3": "nowhere"}, "", "no S3 client"),
        ({}, "A", "is not a bucket name"),
        ({}, "two words", "is not a valid URL"),
    ],
)
def test_a_fault_is_reported_in_one_line(
    environment: dict[str, str], bucket_name: str, message: str, bucket: str, monkeypatch: Any
) -> None:
    for name, value in ({"AWS_MAX_ATTEMPTS": "2", "AWS_EC2_METADATA_DISABLED": "true"} | environment).items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(app, ["s3", "make-bucket", f"s3://{bucket_name or bucket}-new"])
    assert (result.exit_code, result.stderr.count("error: "), result.stderr.count("\n")) == (1, 1, 1)
    assert message in result.stderr
    assert "planted-secret" not in result.output


def test_missing_sources_are_named(bucket: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing is missing or has no files"):
        upload_pairs(tmp_path / "nothing", f"s3://{bucket}/a")
