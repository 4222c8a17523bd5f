"""Buckets: made once, with old versions kept where wanted and half uploads removed after a week."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from botocore.exceptions import ClientError

from components.core.errors import InputError
from components.core.storage.faults import UNKNOWN, explained, fault_code
from components.core.storage.url import split_url

_THERE = {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}
_DAYS = 7
_RULE = {
    "ID": "cliptune-half-uploads",
    "Status": "Enabled",
    "Filter": {"Prefix": ""},
    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": _DAYS},
}


def make_bucket(client: Any, url: str, versions: bool) -> list[str]:
    """Make a bucket, or bring one that is there to these settings; what was done, in words.

    Rules for the life of objects that the bucket has already stay as they are.

    Raises:
        InputError: the name is no bucket's or another's, or the store refuses or keeps no versions.
    """
    bucket, key = split_url(url)
    if key:
        raise InputError(f"{url} names an object: write s3://bucket")
    with explained(f"s3://{bucket}", "made"):
        done = [_create(client, bucket)]
        if versions:
            client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
            done.append("old versions are kept")
        done.append(_remove_half_uploads(client, bucket))
    return done


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
    # Not every store tells one's own buckets from others': whether we may look into it does.
    try:
        client.head_bucket(Bucket=bucket)
    except ClientError:
        raise InputError(f"s3://{bucket} belongs to someone else: choose another name") from None
    return f"s3://{bucket} is there"


def _remove_half_uploads(client: Any, bucket: str) -> str:
    with suppress(ClientError):
        if client.get_bucket_lifecycle_configuration(Bucket=bucket).get("Rules"):
            return "its lifecycle rules stay as they are"
    try:
        client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [_RULE]})
    except ClientError as error:
        if fault_code(error) in UNKNOWN:
            return "the store has no lifecycle rules: remove half uploads by hand"
        raise
    return f"half uploads are removed after {_DAYS} days"
