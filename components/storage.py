"""S3 and compatible stores; endpoint, region and keys come from the environment, as boto3 reads them."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

from components.errors import InputError

_BUFFER = 1 << 20
_ATTEMPTS = 6
_MISSING = {"404", "NoSuchKey", "NoSuchBucket", "NotFound"}
_REFUSED = {"401", "403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"}
_CHANGED = {"412", "PreconditionFailed"}


class S3:
    """A store; `AWS_ENDPOINT_URL_S3` names it when it is not Amazon's. Requests are retried by botocore."""

    def __init__(self) -> None:
        config = Config(retries={"mode": "standard", "max_attempts": _ATTEMPTS}, connect_timeout=10, read_timeout=60)
        try:
            # boto3's own session would keep the first credentials it found, and is not made for threads.
            self._client: Any = boto3.session.Session().client("s3", config=config)
        except (ValueError, BotoCoreError) as error:
            raise InputError(f"no S3 client ({error}): check AWS_ENDPOINT_URL_S3 and AWS_PROFILE") from None

    def open(self, url: str) -> BinaryIO:
        """A stream of the object's bytes; a broken connection is taken up again where it broke.

        Raises:
            InputError: the object is missing, may not be read, changes while it is read, or stays out of reach.
        """
        bucket, key = split_url(url)
        return cast(BinaryIO, io.BufferedReader(_Body(self._client, url, bucket, key), _BUFFER))

    def read(self, url: str) -> bytes:
        """The whole object."""
        with self.open(url) as stream:
            return stream.read()

    def exists(self, url: str) -> bool:
        """Whether the object is there.

        Raises:
            InputError: it may not be looked at, or the store is out of reach.
        """
        bucket, key = split_url(url)
        try:
            with _explained(url):
                self._client.head_object(Bucket=bucket, Key=key)
        except _MissingError:
            return False
        return True

    def list(self, url: str) -> list[str]:
        """URLs of all objects whose key starts with the key of `url`, sorted.

        Raises:
            InputError: the bucket is missing, may not be listed, or the store is out of reach.
        """
        bucket, prefix = split_url(url)
        with _explained(url):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            return sorted(f"s3://{bucket}/{entry['Key']}" for page in pages for entry in page.get("Contents", []))


def split_url(url: str) -> tuple[str, str]:
    """Bucket and key of `s3://bucket/key`.

    Raises:
        InputError: it is no such URL.
    """
    bucket, _, key = url.removeprefix("s3://").partition("/")
    if not url.startswith("s3://") or not bucket:
        raise InputError(f"'{url}' is no S3 URL: write s3://bucket/key")
    return bucket, key


class _MissingError(InputError):
    """The object or bucket is not there."""


class _Body(io.RawIOBase):
    """An object's bytes in order; botocore retries requests, but not the reading of an answer's body."""

    def __init__(self, client: Any, url: str, bucket: str, key: str) -> None:
        self._client, self._url, self._target = client, url, {"Bucket": bucket, "Key": key}
        self._position = 0
        self._size: int | None = None
        self._etag = ""
        self._body: Any = None
        with _explained(url):
            self._connect()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _explained(self._url):
            data = self._next(len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        self._drop()
        super().close()

    def _next(self, size: int) -> bytes:
        for attempt in range(_ATTEMPTS):
            try:
                if self._body is None:
                    self._connect()
                data: bytes = self._body.read(size)
                if data or self._position == self._size:
                    return data
            except (BotoCoreError, OSError):
                if attempt == _ATTEMPTS - 1:
                    raise
            self._drop()
            time.sleep(min(0.1 * 2**attempt, 5.0))
        raise InputError(f"{self._url} ends after {self._position} of {self._size} bytes: try again later")

    def _connect(self) -> None:
        if self._size is None:
            answer = self._client.get_object(**self._target)
            self._size, self._etag = answer["ContentLength"], answer["ETag"]
        else:
            answer = self._client.get_object(**self._target, Range=f"bytes={self._position}-", IfMatch=self._etag)
        self._body = answer["Body"]

    def _drop(self) -> None:
        if self._body is not None:
            self._body.close()
        self._body = None


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """What boto3 raises, as one line that says what to do."""
    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in _MISSING:
            raise _MissingError(f"{url} is missing: put it there or correct the URL") from None
        if code in _REFUSED:
            raise InputError(f"{url} may not be read ({code}): check AWS_ACCESS_KEY_ID and its rights") from None
        if code in _CHANGED:
            raise InputError(f"{url} was replaced while it was read: start again") from None
        raise InputError(f"{url} cannot be read ({error}): try again later") from None
    except (NoCredentialsError, PartialCredentialsError):
        raise InputError(f"{url} needs credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY") from None
    except (BotoCoreError, OSError) as error:
        raise InputError(f"{url} is out of reach ({error}): check AWS_ENDPOINT_URL_S3 and the network") from None
