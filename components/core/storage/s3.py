"""S3 and compatible stores; endpoint, region and keys come from the environment, as boto3 reads them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from components.core.errors import InputError
from components.core.storage.bucket import make_bucket
from components.core.storage.digest import PART
from components.core.storage.download import download
from components.core.storage.faults import PATIENCE, MissingError, explained, patiently
from components.core.storage.folder import check_inside, put_folder, read_manifest
from components.core.storage.reading import ATTEMPTS, ObjectReader
from components.core.storage.state import UPLOADS
from components.core.storage.upload import Stored, Uploader
from components.core.storage.url import split_url

_BUFFER = 1 << 20
_PATIENT = Config(retries={"mode": "standard", "max_attempts": ATTEMPTS}, connect_timeout=10, read_timeout=60)
_HURRIED = Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=4, read_timeout=8)


def _silent(_size: int) -> None:
    """Tell nobody."""


class S3:
    """A store; `AWS_ENDPOINT_URL_S3` names it when it is not Amazon's. Requests are retried by botocore.

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
            # boto3's own session would keep the first credentials it found, and is not made for threads.
            session = boto3.session.Session(access_key, secret_key, region_name=region, profile_name=profile)
            self._client: Any = session.client("s3", endpoint_url=endpoint, config=_HURRIED if hurry else _PATIENT)
        except (ValueError, BotoCoreError) as error:
            raise InputError(f"no S3 client ({error}): check AWS_ENDPOINT_URL_S3 and AWS_PROFILE") from None

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

    def exists(self, url: str) -> bool:
        """Whether the object is there.

        Raises:
            InputError: it may not be looked at, or the store is out of reach.
        """
        bucket, key = split_url(url)
        try:
            with explained(url):
                self._client.head_object(Bucket=bucket, Key=key)
        except MissingError:
            return False
        return True

    def put(
        self,
        source: Path,
        url: str,
        on_bytes: Callable[[int], None] = _silent,
        part_size: int = PART,
        patience: float = PATIENCE,
        state: Path = UPLOADS,
    ) -> Stored:
        """Store a file: it appears whole or not at all, and holds what the file holds, checked by SHA-256.

        An upload that was stopped goes on with the parts that are missing; a store that goes away is waited for.

        Args:
            source: the file.
            url: `s3://bucket/key`.
            on_bytes: called with how many more bytes are in the store.
            part_size: bytes of one part.
            patience: seconds that the store may stay away.
            state: folder that remembers uploads which have begun.

        Raises:
            InputError: the file is missing, changes meanwhile, or the store refuses it or stays away.
        """
        uploader = Uploader(self._client, part_size=part_size, patience=patience, state=state, on_bytes=on_bytes)
        return uploader.put(source, url)

    def put_folder(self, folder: Path, url: str, on_bytes: Callable[[int], None] = _silent) -> list[Stored]:
        """Store every file below a folder under `url`, and then a manifest of them.

        Raises:
            InputError: as `put`; or the folder holds no files.
        """
        return put_folder(lambda path, target: self.put(path, target, on_bytes), self._put_bytes, folder, url)

    def get(self, url: str, target: Path, on_bytes: Callable[[int], None] = _silent) -> str:
        """Write an object to a file and return its SHA-256; a file that holds it already is left alone.

        Raises:
            InputError: the object is missing, cannot be read, or is not what was stored.
        """
        return download(self._client, url, target, on_bytes)

    def get_folder(self, url: str, target: Path, on_bytes: Callable[[int], None] = _silent) -> list[Path]:
        """Write every object below `url` to a folder; by the manifest, where there is one. Another call continues.

        Raises:
            InputError: as `get`; or nothing is there, or a name would be written outside the folder.
        """
        url = url.rstrip("/") + "/"
        manifest = read_manifest(self.read, url)
        if manifest is not None:
            wanted = {name: entry.sha256 for name, entry in manifest.files.items()}
        else:
            names = [one.removeprefix(url) for one in self.list(url) if not one.endswith("/")]
            wanted = dict.fromkeys(names, "")
        if not wanted:
            raise MissingError(f"{url} is missing: put it there or correct the URL")
        for name, sha256 in wanted.items():
            check_inside(name, url)
            download(self._client, url + name, target / name, on_bytes, sha256 or None)
        return [target / name for name in wanted]

    def make_bucket(self, url: str, versions: bool = False) -> tuple[str, ...]:
        """Make a bucket, or bring one that is there to these settings; what was done, in words.

        Raises:
            InputError: the name is no bucket's or another's, or the store refuses.
        """
        return tuple(make_bucket(self._client, url, versions))

    def check_bucket(self, url: str) -> None:
        """Raise `InputError` when the bucket of `url` is not there or may not be used."""
        bucket, _ = split_url(url)
        with explained(f"s3://{bucket}", "used"):
            self._client.head_bucket(Bucket=bucket)

    def buckets(self) -> tuple[str, ...]:
        """Names of all buckets.

        Raises:
            InputError: they may not be listed, or the store is out of reach.
        """
        with explained("s3://", "listed"):
            return tuple(bucket["Name"] for bucket in self._client.list_buckets()["Buckets"])

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

    def _put_bytes(self, content: bytes, url: str) -> None:
        bucket, key = split_url(url)
        with explained(url, "written"):
            patiently(lambda: self._client.put_object(Bucket=bucket, Key=key, Body=content))
