"""URLs of objects, `s3://bucket/key`, and the local files that belong to them."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

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


def upload_pairs(source: Path, url: str) -> list[tuple[Path, str]]:
    """A file, or the files below a folder, sorted, each with its object's URL.

    Raises:
        InputError: there are none.
    """
    if source.is_file():
        return [(source, url + source.name if url.endswith("/") else url)]
    files = sorted(path for path in source.rglob("*") if path.is_file())
    if not files:
        raise InputError(f"{source} is missing or holds no files: name a file or folder that is there")
    return [(path, f"{url.rstrip('/')}/{path.relative_to(source).as_posix()}") for path in files]


def path_inside(folder: Path, name: str, url: str) -> Path:
    """The file for an object's name below `url`.

    Raises:
        InputError: the file would lie outside the folder.
    """
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise InputError(f"{url} names '{name}', which lies outside the folder: do not trust what is there")
    return folder / name
