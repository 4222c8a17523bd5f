"""What an S3 store answers when something is wrong, as one line that says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    FlexibleChecksumError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)
from s3transfer.exceptions import RetriesExceededError, S3DownloadFailedError, S3ValidationError

from components.core.errors import InputError

UNKNOWN = {"NotImplemented", "MethodNotAllowed", "501", "405"}
_MISSING = {"404", "NoSuchKey", "NoSuchBucket", "NotFound"}
_REFUSED = {"401", "403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"}
_CHANGED = {"412", "PreconditionFailed"}


class MissingError(InputError):
    """The object or bucket is not there."""


def fault_code(error: ClientError) -> str:
    """The store's own word for what is wrong."""
    return str(error.response.get("Error", {}).get("Code", ""))


@contextmanager
def explained(url: str, verb: str = "read") -> Iterator[None]:
    """What boto3 raises, as one line that says what to do.

    Raises:
        MissingError: the object or bucket is not there.
        InputError: everything else.
    """
    try:
        yield
    except ClientError as error:
        raise _answered(error, url, verb) from None
    except S3DownloadFailedError:
        raise InputError(f"{url} was replaced while it was {verb}: start again") from None
    except (FlexibleChecksumError, S3ValidationError) as error:
        raise InputError(f"{url} is not what was stored ({error}): upload it again") from None
    except (NoCredentialsError, PartialCredentialsError):
        raise InputError(f"{url} needs credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY") from None
    except ParamValidationError as error:
        reason = str(error).splitlines()[-1]
        raise InputError(f"{url} is no usable URL ({reason}): write s3://bucket/key") from None
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
        return InputError(f"{url} cannot be {verb} ({error}): leave out the option that this store does not know")
    if code == "InvalidBucketName":
        return InputError(f"{url} is no name for a bucket: write 3 to 63 lower-case letters, digits, dots and hyphens")
    return InputError(f"{url} cannot be {verb} ({error}): try again later")
