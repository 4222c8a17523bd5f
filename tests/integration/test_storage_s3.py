"""Files and folders in a real S3 server: whole, sent once, and never written outside the target folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from components.cli import app
from components.core.pictures.storage import S3, path_inside
from components.core.system.errors import InputError

pytestmark = pytest.mark.integration
LARGE = 40 << 20
"""Bytes of a file that travels in several parts."""


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


@pytest.mark.parametrize("size", [0, 1000, LARGE + 7])
def test_a_file_is_sent_once_and_fetched_unchanged(bucket: str, size: int, tmp_path: Path) -> None:
    url, path, back = f"s3://{bucket}/file", tmp_path / "file", tmp_path / "back"
    path.write_bytes(os.urandom(size))
    sizes: list[int] = []
    assert S3().put(path, url, sizes.append) == size
    assert (sum(sizes), S3().put(path, url)) == (size, 0)
    sizes.clear()
    S3().get(url, back, sizes.append)
    assert (sum(sizes), back.read_bytes()) == (size, path.read_bytes())
    written = back.stat().st_mtime_ns
    S3().get(url, back)
    assert back.stat().st_mtime_ns == written
    path.write_bytes(os.urandom(size + 1))
    assert S3().put(path, url) == size + 1
    assert S3().read(url) == path.read_bytes()


def test_damaged_object_is_refused_and_the_file_stays(s3: Any, bucket: str, tmp_path: Path) -> None:
    url, target = f"s3://{bucket}/a", tmp_path / "target"
    target.write_bytes(b"earlier")
    s3.client().put_object(Bucket=bucket, Key="a", Body=b"damaged", Metadata={"sha256": "0" * 64})
    with pytest.raises(InputError, match="differs from the uploaded content"):
        S3().get(url, target)
    assert target.read_bytes() == b"earlier"


def test_an_object_without_a_hash_is_fetched(s3: Any, bucket: str, tmp_path: Path) -> None:
    s3.client().put_object(Bucket=bucket, Key="a", Body=b"of another program")
    S3().get(f"s3://{bucket}/a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"of another program"


def test_file_that_changes_during_the_upload_is_refused(bucket: str, tmp_path: Path) -> None:
    path = tmp_path / "grows"
    path.write_bytes(os.urandom(LARGE))

    def change(_size: int) -> None:
        with path.open("ab") as stream:
            stream.write(b"x")

    with pytest.raises(InputError, match="changed while it was uploaded"):
        S3().put(path, f"s3://{bucket}/grows", change)
    assert not S3().exists(f"s3://{bucket}/grows")


def test_a_folder_is_sent_and_fetched_unchanged(bucket: str, folder: Path, tmp_path: Path) -> None:
    url = f"s3://{bucket}/laion"
    run = CliRunner().invoke
    assert "3 of 3 files would be transferred" in run(app, ["s3", "put", "--dry-run", str(folder), url]).stdout
    assert S3().list(url) == []
    assert "301,000 of them sent now" in run(app, ["s3", "put", str(folder), url]).stdout
    assert ", 0 of them sent now" in run(app, ["s3", "put", str(folder), url]).stdout
    assert "0 of 3 files would be transferred" in run(app, ["s3", "put", "--dry-run", str(folder), url]).stdout
    back = str(tmp_path / "back")
    assert f"{url}/empty -> {back}/empty" in run(app, ["s3", "get", "--dry-run", url, back]).stdout
    assert not Path(back).exists()
    result = run(app, ["s3", "get", url, back])
    assert (result.exit_code, _contents(tmp_path / "back")) == (0, _contents(folder))


def test_a_stopped_upload_of_a_folder_is_resumed(s3: Any, bucket: str, folder: Path) -> None:
    url = f"s3://{bucket}/laion"
    CliRunner().invoke(app, ["s3", "put", str(folder), url])
    kept = s3.client().head_object(Bucket=bucket, Key="laion/000.tar")["LastModified"]
    s3.client().delete_object(Bucket=bucket, Key="laion/more/001.tar")
    s3.client().put_object(Bucket=bucket, Key="laion/empty", Body=b"other")
    result = CliRunner().invoke(app, ["s3", "put", str(folder), url])
    assert "301,000 bytes, 1,000 of them sent now" in result.stdout
    assert s3.client().head_object(Bucket=bucket, Key="laion/000.tar")["LastModified"] == kept
    assert [S3().read(f"{url}/{name}") for name in ("empty", "more/001.tar")] == [
        b"",
        (folder / "more" / "001.tar").read_bytes(),
    ]


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside", "", "a\\b"])
def test_nothing_is_written_outside(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is outside the folder"):
        path_inside(tmp_path, name, "s3://bucket/bad/")


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
        ({"AWS_SECRET_ACCESS_KEY": "planted-secret"}, "", "may not be written"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "", "needs credentials"),
        ({"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"}, "", "is out of reach"),
        ({"AWS_ENDPOINT_URL_S3": "nowhere"}, "", "no S3 client"),
        ({}, "A", "is not a bucket name"),
        ({}, "two words", "is not a valid URL"),
    ],
)
def test_a_fault_is_reported_in_one_line(
    environment: dict[str, str], bucket_name: str, message: str, bucket: str, folder: Path, monkeypatch: Any
) -> None:
    for name, value in ({"AWS_MAX_ATTEMPTS": "2", "AWS_EC2_METADATA_DISABLED": "true"} | environment).items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(app, ["s3", "put", str(folder / "000.tar"), f"s3://{bucket_name or bucket}/000.tar"])
    assert (result.exit_code, result.stderr.count("error: "), result.stderr.count("\n")) == (1, 1, 1)
    assert message in result.stderr
    assert "planted-secret" not in result.output


def test_missing_sources_are_named(bucket: str, tmp_path: Path) -> None:
    for url in (f"s3://{bucket}/nothing", "s3://no-such-bucket", "s3://no-such-bucket/a"):
        result = CliRunner().invoke(app, ["s3", "get", url, str(tmp_path / "back")])
        assert (result.exit_code, f"error: {url}/ is missing" in result.stderr) == (1, True)
    result = CliRunner().invoke(app, ["s3", "put", str(tmp_path / "nothing"), f"s3://{bucket}/a"])
    assert (result.exit_code, "nothing is missing or has no files" in result.stderr) == (1, True)
