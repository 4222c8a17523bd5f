"""URLs of objects, `s3://bucket/key`, their local files, and S3's errors as one line with a fix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    FlexibleChecksumError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)
from s3transfer.exceptions import RetriesExceededError, S3DownloadFailedError, S3ValidationError

from components.core.system.errors import InputError

UNKNOWN = {"NotImplemented", "MethodNotAllowed", "501", "405"}
_MISSING = {"404", "NoSuchKey", "NoSuchBucket", "NotFound"}
_REFUSED = {"401", "403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"}
_CHANGED = {"412", "PreconditionFailed"}


def split_url(url: str) -> tuple[str, str]:
    """Bucket and key of `s3://bucket/key`.

    Raises:
        InputError: it is not such a URL.
    """
    bucket, _, key = url.removeprefix("s3://").partition("/")
    if not url.startswith("s3://") or not bucket:
        raise InputError(f"'{url}' is not an S3 URL: write s3://bucket/key")
    return bucket, key


def object_url(url: str) -> tuple[str, str]:
    """Bucket and key of the URL of one object.

    Raises:
        InputError: it is not a URL, or names a bucket or a folder.
    """
    bucket, key = split_url(url)
    if not key or key.endswith("/"):
        raise InputError(f"{url} is not the URL of an object: write s3://bucket/key")
    return bucket, key


def upload_pairs(source: Path, url: str) -> list[tuple[Path, str]]:
    """A file, or the sorted files below a folder, each with its object's URL.

    Raises:
        InputError: there are none.
    """
    if source.is_file():
        return [(source, url + source.name if url.endswith("/") else url)]
    files = sorted(path for path in source.rglob("*") if path.is_file())
    if not files:
        raise InputError(f"{source} is missing or has no files: name an existing file or folder")
    return [(path, f"{url.rstrip('/')}/{path.relative_to(source).as_posix()}") for path in files]


def path_inside(folder: Path, name: str, url: str) -> Path:
    """The file for an object's name below `url`.

    Raises:
        InputError: the file would lie outside the folder.
    """
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise InputError(f"{url} names '{name}', which is outside the folder: do not trust this source")
    return folder / name


class MissingError(InputError):
    """The object or bucket does not exist."""


def fault_code(error: ClientError) -> str:
    """The store's code of an error."""
    return str(error.response.get("Error", {}).get("Code", ""))


@contextmanager
def explained(url: str, verb: str = "read") -> Iterator[None]:
    """Turn errors of boto3 into one line with a fix.

    Raises:
        MissingError: the object or bucket does not exist.
        InputError: any other error.
    """
    try:
        yield
    except ClientError as error:
        raise _answered(error, url, verb) from None
    except S3DownloadFailedError:
        raise InputError(f"{url} was replaced while it was {verb}: start again") from None
    except (FlexibleChecksumError, S3ValidationError) as error:
        raise InputError(f"{url} differs from the uploaded content ({error}): upload it again") from None
    except (NoCredentialsError, PartialCredentialsError):
        raise InputError(f"{url} needs credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY") from None
    except ParamValidationError as error:
        reason = str(error).splitlines()[-1]
        raise InputError(f"{url} is not a valid URL ({reason}): write s3://bucket/key") from None
    except (BotoCoreError, RetriesExceededError, ConnectionError, TimeoutError) as error:
        raise InputError(f"{url} is out of reach ({error}): check AWS_ENDPOINT_URL_S3 and the network") from None


def _answered(error: ClientError, url: str, verb: str) -> InputError:
    code = fault_code(error)
    if code in _MISSING:
        return MissingError(f"{url} is missing: put it there or correct the URL")
    if code in _REFUSED:
        return InputError(f"{url} may not be {verb} ({code}): check AWS_ACCESS_KEY_ID and its rights")
    if code in _CHANGED:
        return InputError(f"{url} was replaced while it was {verb}: start again")
    if code in UNKNOWN:
        return InputError(f"{url} cannot be {verb} ({error}): omit the option that this store does not support")
    if code == "InvalidBucketName":
        return InputError(f"{url} is not a bucket name: write 3 to 63 lower-case letters, digits, dots and hyphens")
    return InputError(f"{url} cannot be {verb} ({error}): try again later")
