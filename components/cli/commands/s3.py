"""The command `cliptune s3 make-bucket`."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Annotated, Any

import typer

from components.cli.tables import say
from components.core.system.errors import InputError, reported

_NAME = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_DAYS = 7
_RULE = {
    "ID": "cliptune-half-uploads",
    "Status": "Enabled",
    "Filter": {"Prefix": ""},
    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": _DAYS},
}

s3 = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Buckets of an S3 store. Keys and endpoint come from the environment: AWS_ACCESS_KEY_ID, "
    "AWS_SECRET_ACCESS_KEY and, where it is not Amazon's, AWS_ENDPOINT_URL_S3. `aws s3 sync` copies files.",
)


@s3.callback()
def _keep_the_name() -> None:
    """Without a callback a group of one command would be the command."""


@s3.command("make-bucket")
@reported
def make_bucket(
    url: Annotated[str, typer.Argument(help="s3://bucket")],
    versions: Annotated[bool, typer.Option("--versions", help="Keep old versions of objects.")] = False,
) -> None:
    """Make a bucket that removes incomplete uploads after a week, or apply these settings to an existing one.

    Examples: cliptune s3 make-bucket s3://datasets; cliptune s3 make-bucket s3://mlflow --versions
    """
    # `cliptune --help` must not wait for boto3.
    import boto3

    from components.core.pictures.storage import explained

    if not _NAME.fullmatch(url):
        raise InputError(f"'{url}' is not a bucket: write s3:// and 3 to 63 of a-z, 0-9, dots and hyphens")
    bucket = url.removeprefix("s3://")
    with explained(url, "made"):
        client: Any = boto3.session.Session().client("s3")
        done = [f"made {url}" if _create(client, bucket) else f"{url} exists"]
        if versions:
            client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
            done.append("old versions are kept")
        done.append(_remove_half_uploads(client, bucket))
    say("; ".join(done))


def _create(client: Any, bucket: str) -> bool:
    """Whether the bucket is new; raises if it belongs to another account."""
    region = client.meta.region_name
    place = {} if region in (None, "us-east-1") else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    existing = client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists
    with suppress(*existing):
        client.create_bucket(Bucket=bucket, **place)
        return True
    # Not every store distinguishes own and others' buckets above; access to the bucket does.
    client.head_bucket(Bucket=bucket)
    return False


def _remove_half_uploads(client: Any, bucket: str) -> str:
    from botocore.exceptions import ClientError

    with suppress(ClientError):
        if client.get_bucket_lifecycle_configuration(Bucket=bucket).get("Rules"):
            return "its lifecycle rules stay unchanged"
    try:
        client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [_RULE]})
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] in (405, 501):
            return "the store has no lifecycle rules: remove half uploads by hand"
        raise
    return f"half uploads are removed after {_DAYS} days"
