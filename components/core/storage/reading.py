"""An object's bytes in order, over connections that break."""

from __future__ import annotations

import io
import time
from typing import Any

from botocore.exceptions import BotoCoreError

from components.core.errors import InputError
from components.core.storage.faults import explained
from components.core.storage.url import split_url

ATTEMPTS = 6


class ObjectReader(io.RawIOBase):
    """A stream; botocore retries requests, but not the reading of an answer's body.

    Raises:
        InputError: the object is missing, may not be read, changes while it is read, or stays out of reach.
    """

    def __init__(self, client: Any, url: str) -> None:
        bucket, key = split_url(url)
        self._client, self._url, self._target = client, url, {"Bucket": bucket, "Key": key}
        self._position = 0
        self._size: int | None = None
        self._etag = ""
        self._body: Any = None
        self.metadata: dict[str, str] = {}
        with explained(url):
            self._connect()

    @property
    def size(self) -> int:
        """Bytes of the whole object."""
        return self._size or 0

    @property
    def etag(self) -> str:
        """The store's name for this content."""
        return self._etag

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with explained(self._url):
            data = self._next(len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        self._drop()
        super().close()

    def _next(self, size: int) -> bytes:
        for attempt in range(ATTEMPTS):
            try:
                if self._body is None:
                    self._connect()
                data: bytes = self._body.read(size)
                if data or self._position == self._size:
                    return data
            except (BotoCoreError, OSError):
                if attempt == ATTEMPTS - 1:
                    raise
            self._drop()
            time.sleep(min(0.1 * 2**attempt, 5.0))
        raise InputError(f"{self._url} ends after {self._position} of {self._size} bytes: try again later")

    def _connect(self) -> None:
        if self._size is None:
            answer = self._client.get_object(**self._target)
            self._size, self._etag, self.metadata = answer["ContentLength"], answer["ETag"], answer["Metadata"]
        else:
            answer = self._client.get_object(**self._target, Range=f"bytes={self._position}-", IfMatch=self._etag)
        self._body = answer["Body"]

    def _drop(self) -> None:
        if self._body is not None:
            self._body.close()
        self._body = None
