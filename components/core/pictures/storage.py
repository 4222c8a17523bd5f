"""S3 and compatible stores; endpoint, region and keys come from the environment, as boto3 reads them."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    FlexibleChecksumError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)
from s3transfer.exceptions import S3ValidationError

from components.core.system.errors import InputError
from components.core.tables.files import file_hash

_UNKNOWN = {"NotImplemented", "MethodNotAllowed", "501", "405"}
_MISSING = {"404", "NoSuchKey", "NoSuchBucket", "NotFound"}
_REFUSED = {"401", "403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"}
_CHANGED = {"412", "PreconditionFailed"}
_BUFFER = 1 << 20
_READS = 6
"""Attempts to read one block of an object."""
_SHA256 = "sha256"
"""Metadata key with the SHA-256 of the whole content, which S3 itself does not store for objects of several parts."""
_THERE = {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}
_DAYS = 7
_RULE = {
    "ID": "cliptune-half-uploads",
    "Status": "Enabled",
    "Filter": {"Prefix": ""},
    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": _DAYS},
}


class MissingError(InputError):
    """The object or bucket does not exist."""


def _report_nothing(_size: int) -> None:
    pass


class S3:
    """A store: Amazon S3, or the server of `AWS_ENDPOINT_URL_S3`.

    Requests are retried by botocore for about a minute, long enough for a restart; `AWS_MAX_ATTEMPTS` changes that.

    Args:
        hurry: short timeouts and no retries, to check whether the store answers.
    """

    def __init__(
        self,
        hurry: bool = False,
        endpoint: str | None = None,
        region: str | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        profile: str | None = None,
    ) -> None:
        try:
            attempts = 1 if hurry else int(os.environ.get("AWS_MAX_ATTEMPTS", "10"))
            config = Config(
                retries={"mode": "standard", "total_max_attempts": attempts},
                connect_timeout=4 if hurry else 10,
                read_timeout=8 if hurry else 60,
            )
            # boto3's own session would keep the first credentials it found, and is not made for threads.
            session = boto3.session.Session(access_key, secret_key, region_name=region, profile_name=profile)
            self._client: Any = session.client("s3", endpoint_url=endpoint, config=config)
        except (ValueError, BotoCoreError) as error:
            raise InputError(
                f"no S3 client ({error}): check AWS_ENDPOINT_URL_S3, AWS_PROFILE and AWS_MAX_ATTEMPTS"
            ) from None

    def open(self, url: str) -> BinaryIO:
        """A stream of the object's bytes; a broken connection resumes where it broke."""
        return cast(BinaryIO, io.BufferedReader(ObjectReader(self._client, url), _BUFFER))

    def read(self, url: str) -> bytes:
        """The whole object."""
        with self.open(url) as stream:
            return stream.read()

    def read_part(self, url: str, position: int, size: int) -> bytes:
        """`size` bytes of the object from `position` on; raises as `open`."""
        bucket, key = object_url(url)
        with explained(url):
            response = self._client.get_object(Bucket=bucket, Key=key, Range=f"bytes={position}-{position + size - 1}")
            return bytes(response["Body"].read())

    def exists(self, url: str) -> bool:
        """Whether the object exists; raises `InputError` if access is denied, or the store cannot be reached."""
        return bool(self._head(url))

    def put(self, source: Path, url: str, on_bytes: Callable[[int], None] = _report_nothing) -> int:
        """Upload a file, unless the object has its content already; the object appears whole or not at all.

        `on_bytes` gets the number of further bytes in the store; it is negative if some are sent again. Returns the
        number of uploaded bytes.
        """
        bucket, key = object_url(url)
        if not source.is_file():
            raise InputError(f"{source} is not a file: name an existing one")
        before = source.stat()
        if _is_same(source, self._head(url, "written")):
            on_bytes(before.st_size)
            return 0
        metadata = {_SHA256: file_hash(source)}
        with explained(url, "written"), source.open("rb") as stream:
            self._client.upload_fileobj(stream, bucket, key, {"Metadata": metadata}, on_bytes)
            after = source.stat()
            if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
                self._client.delete_object(Bucket=bucket, Key=key)
                raise InputError(f"{source} changed while it was uploaded: run the command again when it is complete")
        return before.st_size

    def make_bucket(self, url: str, versions: bool = False) -> list[str]:
        """Make a bucket, or apply these settings to an existing one; returns the actions in words.

        Existing lifecycle rules of the bucket stay unchanged.
        """
        bucket, key = split_url(url)
        if key:
            raise InputError(f"{url} names an object: write s3://bucket")
        with explained(f"s3://{bucket}", "made"):
            done = [_create(self._client, bucket)]
            if versions:
                self._client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
                done.append("old versions are kept")
            done.append(_remove_half_uploads(self._client, bucket))
        return done

    def check_bucket(self, url: str) -> None:
        """Raise `InputError` if the bucket of `url` is missing or access is denied."""
        bucket, _ = split_url(url)
        with explained(f"s3://{bucket}", "used"):
            self._client.head_bucket(Bucket=bucket)

    def list(self, url: str) -> list[str]:
        """URLs of all objects whose key starts with the key of `url`, sorted; raises as `etags`."""
        return sorted(self.etags(url))

    def etags(self, url: str) -> dict[str, str]:
        """URL -> ETag of the objects that `list` returns; it changes with the content."""
        bucket, prefix = split_url(url)
        with explained(url):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            entries = [entry for page in pages for entry in page.get("Contents", [])]
        return {f"s3://{bucket}/{entry['Key']}": entry["ETag"] for entry in entries}

    def _head(self, url: str, verb: str = "read") -> dict[str, Any]:
        """The metadata of an object; empty if it does not exist."""
        bucket, key = object_url(url)
        try:
            with explained(url, verb):
                return dict(self._client.head_object(Bucket=bucket, Key=key))
        except MissingError:
            return {}


def _is_same(path: Path, head: dict[str, Any]) -> bool:
    """Whether a file exists with the size and the SHA-256 of an object."""
    size, sha256 = head.get("ContentLength"), head.get("Metadata", {}).get(_SHA256)
    return bool(sha256) and path.is_file() and path.stat().st_size == size and file_hash(path) == sha256


class ObjectReader(io.RawIOBase):
    """A stream of an object's bytes. botocore retries requests, but not reading a response's body; this class does."""

    def __init__(self, client: Any, url: str) -> None:
        bucket, key = object_url(url)
        self._client, self._url, self._target = client, url, {"Bucket": bucket, "Key": key}
        self._position = 0
        with explained(url):
            response = client.get_object(**self._target)
        self._body, self._etag = response["Body"], response["ETag"]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with explained(self._url):
            data = self._next(len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        self._body.close()
        super().close()

    def _next(self, size: int) -> bytes:
        failures = 0
        while True:
            try:
                data: bytes = self._body.read(size)
                return data
            except (BotoCoreError, OSError) as error:
                failures += 1
                if failures == _READS or isinstance(error, FlexibleChecksumError):
                    raise
            self._body.close()
            response = self._client.get_object(**self._target, Range=f"bytes={self._position}-", IfMatch=self._etag)
            self._body = response["Body"]


def _create(client: Any, bucket: str) -> str:
    region = client.meta.region_name
    place = {} if region in (None, "us-east-1") else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    try:
        client.create_bucket(Bucket=bucket, **place)
    except ClientError as error:
        if fault_code(error) not in _THERE:
            raise
    else:
        return f"made s3://{bucket}"
    # Not every store distinguishes own and others' buckets here; access to the bucket does.
    try:
        client.head_bucket(Bucket=bucket)
    except ClientError:
        raise InputError(f"s3://{bucket} belongs to someone else: choose another name") from None
    return f"s3://{bucket} exists"


def _remove_half_uploads(client: Any, bucket: str) -> str:
    with suppress(ClientError):
        if client.get_bucket_lifecycle_configuration(Bucket=bucket).get("Rules"):
            return "its lifecycle rules stay unchanged"
    try:
        client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [_RULE]})
    except ClientError as error:
        if fault_code(error) in _UNKNOWN:
            return "the store has no lifecycle rules: remove half uploads by hand"
        raise
    return f"half uploads are removed after {_DAYS} days"


def split_url(url: str) -> tuple[str, str]:
    """Bucket and key of `s3://bucket/key`; raises `InputError` if it is not such a URL."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    if not url.startswith("s3://") or not bucket:
        raise InputError(f"'{url}' is not an S3 URL: write s3://bucket/key")
    return bucket, key


def object_url(url: str) -> tuple[str, str]:
    """Bucket and key of the URL of one object."""
    bucket, key = split_url(url)
    if not key or key.endswith("/"):
        raise InputError(f"{url} is not the URL of an object: write s3://bucket/key")
    return bucket, key


def upload_pairs(source: Path, url: str) -> list[tuple[Path, str]]:
    """A file, or the sorted files below a folder, each with its object's URL; raises `InputError` if there are none."""
    if source.is_file():
        return [(source, url + source.name if url.endswith("/") else url)]
    files = sorted(path for path in source.rglob("*") if path.is_file())
    if not files:
        raise InputError(f"{source} is missing or has no files: name an existing file or folder")
    return [(path, f"{url.rstrip('/')}/{path.relative_to(source).as_posix()}") for path in files]


def fault_code(error: ClientError) -> str:
    """The store's code of an error."""
    return str(error.response.get("Error", {}).get("Code", ""))


@contextmanager
def explained(url: str, verb: str = "read") -> Iterator[None]:
    """Turn errors of boto3 into one line with a fix.

    Raises:
        MissingError: the object or bucket does not exist.
        InputError: any other error.
    """
    try:
        yield
    except ClientError as error:
        raise _answered(error, url, verb) from None
    except (FlexibleChecksumError, S3ValidationError) as error:
        raise InputError(f"{url} differs from the uploaded content ({error}): upload it again") from None
    except (NoCredentialsError, PartialCredentialsError):
        raise InputError(f"{url} needs credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY") from None
    except ParamValidationError as error:
        reason = str(error).splitlines()[-1]
        raise InputError(f"{url} is not a valid URL ({reason}): write s3://bucket/key") from None
    except (BotoCoreError, ConnectionError, TimeoutError) as error:
        raise InputError(f"{url} is out of reach ({error}): check AWS_ENDPOINT_URL_S3 and the network") from None


def _answered(error: ClientError, url: str, verb: str) -> InputError:
    code = fault_code(error)
    if code in _MISSING:
        return MissingError(f"{url} is missing: put it there or correct the URL")
    if code in _REFUSED:
        return InputError(f"{url} may not be {verb} ({code}): check AWS_ACCESS_KEY_ID and its rights")
    if code in _CHANGED:
        return InputError(f"{url} was replaced while it was {verb}: start again")
    if code in _UNKNOWN:
        return InputError(f"{url} cannot be {verb} ({error}): omit the option that this store does not support")
    if code == "InvalidBucketName":
        return InputError(f"{url} is not a bucket name: write 3 to 63 lower-case letters, digits, dots and hyphens")
    return InputError(f"{url} cannot be {verb} ({error}): try again later")
