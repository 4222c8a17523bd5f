"""Files and folders in a real S3 server: checked, sent once, and never written outside the folder asked for."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from components.cli import app
from components.core.errors import InputError
from components.core.storage import S3
from components.core.storage.digest import digest_file
from components.core.storage.folder import MANIFEST

pytestmark = pytest.mark.integration
PART = 5 << 20


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of three files, one of them empty."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "shards"
    (path / "more").mkdir(parents=True)
    (path / "000.tar").write_bytes(os.urandom(300_000))
    (path / "more" / "001.tar").write_bytes(os.urandom(1000))
    (path / "empty").write_bytes(b"")
    return path


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_server_says_what_we_compute(s3: Any, bucket: str, tmp_path: Path) -> None:
    for size in (0, 1000, PART, 2 * PART + 7):
        path = tmp_path / f"{size}"
        path.write_bytes(os.urandom(size))
        stored = S3().put(path, f"s3://{bucket}/{size}", part_size=PART, state=tmp_path / "uploads")
        digest = digest_file(path, PART)
        head = s3.client().head_object(Bucket=bucket, Key=str(size), ChecksumMode="ENABLED")
        assert head["ETag"] == digest.etag
        assert head["ChecksumSHA256"].partition("-")[0] == digest.checksum.partition("-")[0]
        assert (head["Metadata"]["sha256"], stored.sent) == (digest.sha256, size)
        again = S3().put(path, f"s3://{bucket}/{size}", part_size=PART, state=tmp_path / "uploads")
        assert again.sent == 0


def test_damaged_object_is_refused_and_the_file_stays(s3: Any, bucket: str, tmp_path: Path) -> None:
    url, target = f"s3://{bucket}/a", tmp_path / "target"
    target.write_bytes(b"earlier")
    s3.client().put_object(Bucket=bucket, Key="a", Body=b"damaged", Metadata={"sha256": "0" * 64})
    with pytest.raises(InputError, match="is not what was stored"):
        S3().get(url, target)
    assert target.read_bytes() == b"earlier"


def test_file_that_changes_during_the_upload_is_refused(bucket: str, tmp_path: Path) -> None:
    path = tmp_path / "grows"
    path.write_bytes(os.urandom(6 * PART))

    def change(_size: int) -> None:
        path.write_bytes(b"x" * (6 * PART))

    with pytest.raises(InputError, match="changed while it was uploaded"):
        S3().put(path, f"s3://{bucket}/grows", change, part_size=PART, state=tmp_path / "uploads")
    assert not S3().exists(f"s3://{bucket}/grows")


def test_folder_there_and_back(bucket: str, folder: Path, tmp_path: Path) -> None:
    url = f"s3://{bucket}/laion"
    run = CliRunner().invoke
    assert "301,000 of them sent now" in run(app, ["s3", "put", str(folder), url]).stdout
    assert ", 0 of them sent now" in run(app, ["s3", "put", str(folder), url]).stdout
    result = run(app, ["s3", "get", url, str(tmp_path / "back")])
    assert (result.exit_code, _contents(tmp_path / "back")) == (0, _contents(folder))


def test_folder_with_a_file_missing_or_replaced_is_refused(s3: Any, bucket: str, folder: Path, tmp_path: Path) -> None:
    url = f"s3://{bucket}/laion"
    S3().put_folder(folder, url)
    s3.client().put_object(Bucket=bucket, Key="laion/000.tar", Body=b"other")
    with pytest.raises(InputError, match=r"000\.tar is not what was stored"):
        S3().get_folder(url, tmp_path / "back")
    s3.client().delete_object(Bucket=bucket, Key="laion/000.tar")
    with pytest.raises(InputError, match=r"000\.tar is missing"):
        S3().get_folder(url, tmp_path / "back")


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside", ""])
def test_nothing_is_written_outside(s3: Any, bucket: str, name: str, tmp_path: Path) -> None:
    manifest = {"files": {name: {"size": 1, "sha256": "0" * 64}}}
    s3.client().put_object(Bucket=bucket, Key=f"bad/{MANIFEST}", Body=json.dumps(manifest).encode())
    with pytest.raises(InputError, match="lies outside the folder"):
        S3().get_folder(f"s3://{bucket}/bad", tmp_path / "inside")
    assert not (tmp_path / "outside").exists()


def test_buckets_are_made_once(s3: Any, bucket: str) -> None:
    url = f"s3://{bucket}-new"
    done = S3().make_bucket(url, versions=True)
    assert done == (f"made {url}", "old versions are kept", "half uploads are removed after 7 days")
    assert S3().make_bucket(url)[0] == f"{url} is there"
    with pytest.raises(InputError, match="is no name for a bucket"):
        S3().make_bucket("s3://b")


def test_wrong_keys_are_said_in_one_line(s3: Any, bucket: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret")
    result = CliRunner().invoke(app, ["s3", "put", str(folder / "000.tar"), f"s3://{bucket}/000.tar"])
    assert (result.exit_code, "planted-secret" in result.output) == (1, False)
    assert "may not be written" in result.output or "may not be written" in str(result.stderr)
