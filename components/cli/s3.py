"""The commands `cliptune s3 ...`: dataset shards, encoders and other files to an S3 store and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from components.core.system.errors import reported

# Other packages are imported inside the commands: `cliptune --help` must not wait for boto3.

s3 = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Files and folders in an S3 store. Keys and endpoint come from the environment: AWS_ACCESS_KEY_ID, "
    "AWS_SECRET_ACCESS_KEY and, where it is not Amazon's, AWS_ENDPOINT_URL_S3.",
)


_DRY_RUN = typer.Option("--dry-run", help="List the files that would be transferred; transfer nothing.")


@s3.command()
@reported
def put(
    source: Annotated[Path, typer.Argument(help="A file or a folder.")],
    url: Annotated[str, typer.Argument(help="s3://bucket/key, or s3://bucket/prefix/ to keep the file's name.")],
    dry_run: Annotated[bool, _DRY_RUN] = False,
) -> None:
    """Upload a file or a folder. A second run after a stop sends only missing files.

    Examples: cliptune s3 put data/shards s3://datasets/laion/; cliptune s3 put models/paraclip s3://encoders/paraclip/
    """
    from components.core.pictures.storage import S3, upload_pairs

    store, pairs = S3(), upload_pairs(source, url)
    total = sum(path.stat().st_size for path, _ in pairs)
    if dry_run:
        missing = [f"{path} -> {object_}" for path, object_ in pairs if not store.holds(path, object_)]
        _print_plan(missing, len(pairs))
        return
    with _bar(total) as progress:
        sent = sum(store.put(path, object_, progress.update) for path, object_ in pairs)
    typer.echo(f"{len(pairs)} files, {total:,} bytes, {sent:,} of them sent now")


@s3.command()
@reported
def get(
    url: Annotated[str, typer.Argument(help="s3://bucket/key, or s3://bucket/prefix/ for all below it.")],
    target: Annotated[Path, typer.Argument(help="The file or folder to write.")],
    dry_run: Annotated[bool, _DRY_RUN] = False,
) -> None:
    """Download an object or a folder, verified by SHA-256; existing files are not downloaded again.

    Examples: cliptune s3 get s3://encoders/paraclip/ models/paraclip; cliptune s3 get s3://datasets/captions.tsv .
    """
    from components.core.pictures.storage import S3

    store = S3()
    pairs = store.download_pairs(url, target)
    if dry_run:
        missing = [f"{object_} -> {path}" for object_, path in pairs if not store.holds(path, object_)]
        _print_plan(missing, len(pairs))
        return
    with _bar(None) as progress:
        for object_, path in pairs:
            store.get(object_, path, progress.update)
    typer.echo(f"{len(pairs)} files, {sum(path.stat().st_size for _, path in pairs):,} bytes in {target}")


@s3.command("make-bucket")
@reported
def make_bucket(
    url: Annotated[str, typer.Argument(help="s3://bucket")],
    versions: Annotated[bool, typer.Option("--versions", help="Keep old versions of objects.")] = False,
) -> None:
    """Make a bucket that removes incomplete uploads after a week, or apply these settings to an existing one.

    Examples: cliptune s3 make-bucket s3://datasets; cliptune s3 make-bucket s3://mlflow --versions
    """
    from components.core.pictures.storage import S3

    typer.echo("; ".join(S3().make_bucket(url, versions)))


def _print_plan(lines: list[str], files: int) -> None:
    typer.echo("\n".join([*lines, f"{len(lines)} of {files} files would be transferred; nothing was done"]))


def _bar(total: int | None) -> Any:
    """A progress bar in bytes; without a terminal it prints a line at most every ten seconds."""
    import sys

    from tqdm import tqdm

    every = 0.2 if sys.stderr.isatty() else 10.0
    return tqdm(total=total, unit="B", unit_scale=True, mininterval=every, dynamic_ncols=True, delay=every)
