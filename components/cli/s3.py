"""The command `cliptune s3 make-bucket`."""

from __future__ import annotations

from typing import Annotated

import typer

from components.cli.tables import say
from components.core.system.errors import reported

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
    from components.core.pictures.storage import S3

    say("; ".join(S3().make_bucket(url, versions)))
