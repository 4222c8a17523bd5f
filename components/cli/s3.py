"""The commands `cliptune s3 ...`: dataset shards, encoders and other files to an S3 store and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from components.core.errors import InputError, run_command

# Everything else is imported inside the commands: `cliptune --help` must not wait for boto3.

s3 = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Files and folders in an S3 store. Keys and endpoint come from the environment: AWS_ACCESS_KEY_ID, "
    "AWS_SECRET_ACCESS_KEY and, where it is not Amazon's, AWS_ENDPOINT_URL_S3.",
)


@s3.command()
def put(
    source: Annotated[Path, typer.Argument(help="A file or a folder.")],
    url: Annotated[str, typer.Argument(help="s3://bucket/key, or s3://bucket/prefix/ to keep the file's name.")],
) -> None:
    """Upload a file or a folder, checked by SHA-256; run it again after a stop, and only what is missing is sent.

    Examples: cliptune s3 put data/shards s3://datasets/laion/; cliptune s3 put models/paraclip s3://encoders/paraclip/
    """

    def command() -> None:
        from components.core.storage import S3
        from components.core.storage.folder import folder_files

        store = S3()
        if source.is_dir():
            total = sum(path.stat().st_size for path in folder_files(source))
            with _bar(total) as on_bytes:
                stored = store.put_folder(source, url, on_bytes)
        elif source.is_file():
            with _bar(source.stat().st_size) as on_bytes:
                stored = [store.put(source, url + source.name if url.endswith("/") else url, on_bytes)]
        else:
            raise InputError(f"{source} is missing: name a file or folder that is there")
        sent = sum(one.sent for one in stored)
        for one in stored:
            typer.echo(f"{one.sha256}  {one.url}")
        typer.echo(f"{len(stored)} files, {sum(one.size for one in stored):,} bytes, {sent:,} of them sent now")

    run_command(command)


@s3.command()
def get(
    url: Annotated[str, typer.Argument(help="s3://bucket/key, or s3://bucket/prefix/ for all below it.")],
    target: Annotated[Path, typer.Argument(help="The file or folder to write.")],
) -> None:
    """Download an object or a folder, checked by SHA-256; what is there already is not fetched again.

    Examples: cliptune s3 get s3://encoders/paraclip/ models/paraclip; cliptune s3 get s3://datasets/captions.tsv .
    """

    def command() -> None:
        from components.core.storage import S3

        store = S3()
        with _bar(None) as on_bytes:
            if url.endswith("/") or not store.exists(url):
                files = store.get_folder(url, target, on_bytes)
            else:
                files = [target / url.rpartition("/")[2] if target.is_dir() else target]
                store.get(url, files[0], on_bytes)
        typer.echo(f"{len(files)} files, {sum(path.stat().st_size for path in files):,} bytes in {target}")

    run_command(command)


@s3.command("make-bucket")
def make_bucket(
    url: Annotated[str, typer.Argument(help="s3://bucket")],
    versions: Annotated[bool, typer.Option("--versions", help="Keep old versions of objects.")] = False,
) -> None:
    """Make a bucket whose half uploads are removed after a week; one that is there is brought to these settings.

    Examples: cliptune s3 make-bucket s3://datasets; cliptune s3 make-bucket s3://mlflow --versions
    """

    def command() -> None:
        from components.core.storage import S3

        typer.echo("; ".join(S3().make_bucket(url, versions)))

    run_command(command)


@contextmanager
def _bar(total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar in bytes; without a terminal it prints a line at most every ten seconds."""
    import sys

    from tqdm import tqdm

    interval = 0.2 if sys.stderr.isatty() else 10.0
    with tqdm(
        total=total, unit="B", unit_scale=True, mininterval=interval, dynamic_ncols=True, delay=interval
    ) as progress:

        def on_bytes(size: int) -> None:
            progress.update(size)

        yield on_bytes
