"""Folders and buckets in a real S3 server, and errors in one line."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from components.cli import app
from components.core.pictures.storage import S3
from components.core.system.errors import InputError

pytestmark = pytest.mark.integration


def test_a_folder_is_uploaded_whole(bucket: str, tmp_path: Path) -> None:
    contents = {"empty": b"", "small": os.urandom(1000), "deep/in parts": os.urandom((101 << 20) + 7)}
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    store, url = S3(), f"s3://{bucket}/prefix"
    store.upload(tmp_path, url)
    assert list(store.etags(url)) == sorted(f"{url}/{name}" for name in contents)
    assert {name: store.read(f"{url}/{name}") for name in contents} == contents
    assert store.exists(f"{url}/small")
    assert not store.exists(f"{url}/other")
    with pytest.raises(InputError, match="other is missing"):
        store.open(f"{url}/other")


def test_buckets_are_made_once(s3: Any) -> None:
    url = f"s3://new-{secrets.token_hex(6)}"
    made = CliRunner().invoke(app, ["s3", "make-bucket", url, "--versions"])
    assert made.output == f"made {url}; old versions are kept; half uploads are removed after 7 days\n"
    again = CliRunner().invoke(app, ["s3", "make-bucket", url])
    assert again.output == f"{url} exists; its lifecycle rules stay unchanged\n"


@pytest.mark.parametrize(
    ("environment", "name", "message"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "planted-secret"}, "", "may not be made"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "", "needs credentials"),
        ({"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"}, "", "is out of reach"),
        ({"AWS_ENDPOINT_URL_S3": "http://me:planted-secret@127.0.0.1:9"}, "", "is out of reach"),
        ({"AWS_ENDPOINT_URL_S3": "nowhere"}, "", "is out of reach (Invalid endpoint"),
        ({}, "A-new", "is not a bucket: write"),
        ({}, "two words", "is not a bucket: write"),
    ],
)
def test_a_fault_is_reported_in_one_line(
    environment: dict[str, str], name: str, message: str, bucket: str, monkeypatch: Any
) -> None:
    for key, value in ({"AWS_MAX_ATTEMPTS": "2", "AWS_EC2_METADATA_DISABLED": "true"} | environment).items():
        monkeypatch.setenv(key, value)
    result = CliRunner().invoke(app, ["s3", "make-bucket", f"s3://{name or f'{bucket}-new'}"])
    assert (result.exit_code, result.stderr.count("error: "), result.stderr.count("\n")) == (1, 1, 1)
    assert message in result.stderr
    if not name:
        with pytest.raises(InputError, match=message.replace("made", "read").replace("(", r"\(")) as caught:
            S3().etags(f"s3://{bucket}/prefix")
        assert "\n" not in str(caught.value)
        assert "planted-secret" not in result.output + str(caught.value)
