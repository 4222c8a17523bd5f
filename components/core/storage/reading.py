"""An object's bytes in order, over connections that break."""

from __future__ import annotations

import io
from typing import Any

from botocore.exceptions import BotoCoreError, FlexibleChecksumError

from components.core.storage.faults import explained
from components.core.storage.url import object_url

_ATTEMPTS = 6


class ObjectReader(io.RawIOBase):
    """A stream; botocore retries requests, but not the reading of an answer's body, which is asked for again here.

    Raises:
        InputError: the object is missing, may not be read, changes while it is read, or stays out of reach.
    """

    def __init__(self, client: Any, url: str) -> None:
        bucket, key = object_url(url)
        self._client, self._url, self._target = client, url, {"Bucket": bucket, "Key": key}
        self._position = 0
        with explained(url):
            answer = client.get_object(**self._target)
        self._body, self._etag = answer["Body"], answer["ETag"]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with explained(self._url):
            data = self._next(len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        self._body.close()
        super().close()

    def _next(self, size: int) -> bytes:
        failures = 0
        while True:
            try:
                data: bytes = self._body.read(size)
                return data
            except (BotoCoreError, OSError) as error:
                failures += 1
                if failures == _ATTEMPTS or isinstance(error, FlexibleChecksumError):
                    raise
            self._body.close()
            answer = self._client.get_object(**self._target, Range=f"bytes={self._position}-", IfMatch=self._etag)
            self._body = answer["Body"]
