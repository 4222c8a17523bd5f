"""URLs of objects: `s3://bucket/key`."""

from __future__ import annotations

from components.core.errors import InputError


def split_url(url: str) -> tuple[str, str]:
    """Bucket and key of `s3://bucket/key`.

    Raises:
        InputError: it is no such URL.
    """
    bucket, _, key = url.removeprefix("s3://").partition("/")
    if not url.startswith("s3://") or not bucket:
        raise InputError(f"'{url}' is no S3 URL: write s3://bucket/key")
    return bucket, key


def object_url(url: str) -> tuple[str, str]:
    """Bucket and key of the URL of one object.

    Raises:
        InputError: it is no URL, or names a bucket or a folder.
    """
    bucket, key = split_url(url)
    if not key or key.endswith("/"):
        raise InputError(f"{url} names no object: write s3://bucket/key")
    return bucket, key
