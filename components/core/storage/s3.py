"""S3 and compatible stores; endpoint, region and keys come from the environment, as boto3 reads them."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from components.core.errors import InputError
from components.core.files import atomic_file, file_hash
from components.core.storage.bucket import make_bucket
from components.core.storage.faults import MissingError, explained
from components.core.storage.reading import ObjectReader
from components.core.storage.url import object_url, path_inside, split_url

_BUFFER = 1 << 20
_SHA256 = "sha256"
"""Metadata key with the SHA-256 of the whole content, which S3 itself does not keep for objects of several parts."""


def _silent(_size: int) -> None:
    """Tell nobody."""


class S3:
    """A store; `AWS_ENDPOINT_URL_S3` names it when it is not Amazon's.

    Requests are retried by botocore for about a minute, long enough for a restart; `AWS_MAX_ATTEMPTS` changes that.

    Args:
        hurry: one attempt of a few seconds at each request, to learn whether the store answers at all.
        endpoint: instead of the environment's.
        region: instead of the environment's.
        access_key: instead of the environment's, together with `secret_key`.
        secret_key: see `access_key`.
        profile: of the files in ~/.aws, instead of the environment's.

    Raises:
        InputError: the endpoint is no URL, or the profile is unknown.
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
        """A stream of the object's bytes; a broken connection is taken up again where it broke.

        Raises:
            InputError: the object is missing, may not be read, changes while it is read, or stays out of reach.
        """
        return cast(BinaryIO, io.BufferedReader(ObjectReader(self._client, url), _BUFFER))

    def read(self, url: str) -> bytes:
        """The whole object."""
        with self.open(url) as stream:
            return stream.read()

    def read_part(self, url: str, position: int, size: int) -> bytes:
        """`size` bytes of the object from `position` on; raises as `open`."""
        bucket, key = object_url(url)
        with explained(url):
            answer = self._client.get_object(Bucket=bucket, Key=key, Range=f"bytes={position}-{position + size - 1}")
            return bytes(answer["Body"].read())

    def exists(self, url: str) -> bool:
        """Whether the object is there.

        Raises:
            InputError: it may not be looked at, or the store is out of reach.
        """
        return bool(self._head(url))

    def holds(self, path: Path, url: str) -> bool:
        """Whether the object is there and holds what the file holds; raises as `exists`."""
        return _is_same(path, self._head(url))

    def put(self, source: Path, url: str, on_bytes: Callable[[int], None] = _silent) -> int:
        """Store a file, unless its content is there already; the object appears whole or not at all.

        Args:
            source: the file.
            url: `s3://bucket/key`.
            on_bytes: called with how many more bytes are in the store; less than 0 where some are sent again.

        Returns:
            How many bytes had to travel.

        Raises:
            InputError: the file is missing, changes meanwhile, or the store refuses it or stays away.
        """
        bucket, key = object_url(url)
        if not source.is_file():
            raise InputError(f"{source} is no file: name one that is there")
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

    def get(self, url: str, target: Path, on_bytes: Callable[[int], None] = _silent) -> None:
        """Write an object to a file, whole or not at all; a file that holds it already is left alone.

        Raises:
            InputError: the object is missing, cannot be read, or is not what was stored; or the file cannot be written.
        """
        bucket, key = object_url(url)
        with explained(url):
            head = self._client.head_object(Bucket=bucket, Key=key)
            if _is_same(target, head):
                on_bytes(head["ContentLength"])
                return
            try:
                with atomic_file(target) as temporary:
                    with temporary.open("wb") as stream:
                        self._client.download_fileobj(bucket, key, stream, None, on_bytes)
                    wanted, found = head["Metadata"].get(_SHA256), file_hash(temporary)
                    if wanted not in (None, found):
                        raise InputError(f"{url} is not what was stored (SHA-256 {found}): upload it again")
            except OSError as error:
                reason = error.strerror
                raise InputError(f"{target} cannot be written ({reason}): make room, or correct the path") from None

    def download_pairs(self, url: str, target: Path) -> list[tuple[str, Path]]:
        """An object, or all below `url`, sorted, each with its file.

        Raises:
            InputError: nothing is there, or may not be looked at, or a file would lie outside the folder.
        """
        if split_url(url)[1] and not url.endswith("/") and self.exists(url):
            return [(url, target / url.rpartition("/")[2] if target.is_dir() else target)]
        url = url.rstrip("/") + "/"
        names = [one.removeprefix(url) for one in self.list(url) if not one.endswith("/")]
        if not names:
            raise MissingError(f"{url} is missing: put it there or correct the URL")
        return [(url + name, path_inside(target, name, url)) for name in names]

    def make_bucket(self, url: str, versions: bool = False) -> list[str]:
        """Make a bucket, or bring one that is there to these settings; what was done, in words.

        Raises:
            InputError: the name is no bucket's or another's, or the store refuses.
        """
        return make_bucket(self._client, url, versions)

    def check_bucket(self, url: str) -> None:
        """Raise `InputError` when the bucket of `url` is not there or may not be used."""
        bucket, _ = split_url(url)
        with explained(f"s3://{bucket}", "used"):
            self._client.head_bucket(Bucket=bucket)

    def buckets(self) -> list[str]:
        """Names of all buckets.

        Raises:
            InputError: they may not be listed, or the store is out of reach.
        """
        with explained("s3://", "listed"):
            return [bucket["Name"] for bucket in self._client.list_buckets()["Buckets"]]

    def list(self, url: str) -> list[str]:
        """URLs of all objects whose key starts with the key of `url`, sorted.

        Raises:
            InputError: the bucket is missing, may not be listed, or the store is out of reach.
        """
        return sorted(self.etags(url))

    def etags(self, url: str) -> dict[str, str]:
        """The ETags of the objects that `list` finds, by their URLs: another content has another one.

        Raises:
            InputError: as `list`.
        """
        bucket, prefix = split_url(url)
        with explained(url):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            found = [entry for page in pages for entry in page.get("Contents", [])]
        return {f"s3://{bucket}/{entry['Key']}": entry["ETag"] for entry in found}

    def _head(self, url: str, verb: str = "read") -> dict[str, Any]:
        """What the store says of an object; nothing when it is not there."""
        bucket, key = object_url(url)
        try:
            with explained(url, verb):
                return dict(self._client.head_object(Bucket=bucket, Key=key))
        except MissingError:
            return {}


def _is_same(path: Path, head: dict[str, Any]) -> bool:
    """Whether a file is there and has the size and the SHA-256 that an object was stored with."""
    size, sha256 = head.get("ContentLength"), head.get("Metadata", {}).get(_SHA256)
    return bool(sha256) and path.is_file() and path.stat().st_size == size and file_hash(path) == sha256
