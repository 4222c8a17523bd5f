"""Objects of S3 and compatible stores, by s3fs; endpoint, region and keys come from the environment, as for boto3."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError
from fsspec.exceptions import FSTimeoutError
from s3fs import S3FileSystem
from s3fs.core import S3File
from s3fs.errors import translate_boto_error
from s3fs.utils import FileExpired

from components.core.system.errors import InputError

_BLOCK = 8 << 20
"""Bytes of each request of a stream; it holds about two blocks in memory."""


class S3:
    """A store: Amazon S3, or the server of `AWS_ENDPOINT_URL_S3`.

    botocore retries requests for about a minute, long enough for a restart; s3fs reads a broken body again. All methods
    raise `InputError` if the store is out of reach or denies access.

    Args:
        attempts: of each request; by default `AWS_MAX_ATTEMPTS`, or 10.
    """

    def __init__(self, attempts: int | None = None) -> None:
        given = os.environ.get("AWS_MAX_ATTEMPTS", "10")
        if not given.isdecimal():
            raise InputError(f"AWS_MAX_ATTEMPTS={given} is not a number: set it to 10, or unset it")
        retries = {"mode": "standard", "total_max_attempts": attempts or max(1, int(given))}
        # A cached instance would keep the credentials of an earlier environment.
        self._files = S3FileSystem(
            skip_instance_cache=True,
            config_kwargs={"retries": retries},
            use_listings_cache=False,
            max_concurrency=4,
        )
        self._files.retries = attempts or S3FileSystem.retries

    def open(self, url: str) -> BinaryIO:
        """A stream of the object's bytes, which is read in blocks."""
        with explained(url):
            return cast(BinaryIO, _Object(self._files, url, block_size=_BLOCK))

    def read(self, url: str) -> bytes:
        """The whole object."""
        with explained(url):
            return bytes(self._files.cat_file(url))

    def read_part(self, url: str, position: int, size: int) -> bytes:
        """`size` bytes of the object from `position` on."""
        with explained(url):
            return bytes(self._files.cat_file(url, start=position, end=position + size))

    def exists(self, url: str) -> bool:
        """Whether the object exists."""
        with explained(url):
            return bool(self._files.exists(url))

    def etags(self, folder: str) -> dict[str, str]:
        """URL -> ETag of all objects below a folder, sorted by URL; the ETag changes with the content."""
        with explained(folder):
            objects = self._files.find(folder, detail=True)
        return {f"s3://{name}": objects[name]["ETag"] for name in sorted(objects)}

    def upload(self, folder: Path, url: str) -> None:
        """Upload all files below `folder`; each object appears whole or not at all."""
        with explained(url, "written"):
            self._files.put(f"{folder}/", f"{url.rstrip('/')}/", recursive=True)


class _Object(S3File):  # type: ignore[misc]
    """A stream whose errors are explained; an object that is replaced while it is read is an error too."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        with explained(f"s3://{self.bucket}/{self.key}"):
            return bytes(super()._fetch_range(start, end))


@contextmanager
def explained(url: str, verb: str = "read") -> Iterator[None]:
    """Turn errors of s3fs and boto3 into an `InputError`: one line with a fix."""
    try:
        yield
    except FileExpired:
        raise InputError(f"{url} was replaced while it was {verb}: start again") from None
    except (NoCredentialsError, PartialCredentialsError):
        raise InputError(f"{url} needs credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY") from None
    except (BotoCoreError, ConnectionError, FSTimeoutError, ValueError) as error:
        reason = " ".join(str(error).split())
        fix = "check the URL, AWS_ENDPOINT_URL_S3, AWS_PROFILE and the network"
        raise InputError(f"{url} is out of reach ({reason}): {fix}") from None
    except (ClientError, OSError) as error:
        known = translate_boto_error(error)
        if isinstance(known, FileNotFoundError):
            raise InputError(f"{url} is missing: put it there or correct the URL") from None
        if isinstance(known, PermissionError):
            raise InputError(f"{url} may not be {verb} ({known}): check AWS_ACCESS_KEY_ID and its rights") from None
        raise InputError(f"{url} cannot be {verb} ({known}): try again later") from None
