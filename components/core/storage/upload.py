"""Files to objects: whole or not at all, checked by the store, taken up again where an upload stopped."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from botocore.exceptions import ClientError

from components.core.errors import InputError
from components.core.storage.digest import PART, FileDigest, digest_file, stream_hash
from components.core.storage.faults import PATIENCE, explained, fault_code, patiently
from components.core.storage.multipart import Multipart
from components.core.storage.reading import ObjectReader
from components.core.storage.state import UPLOADS, Begun, UploadState, upload_state
from components.core.storage.url import object_url

SHA256 = "sha256"
"""Metadata key with the SHA-256 of the whole content, which S3 itself does not keep for objects of several parts."""
_LOST = {"NoSuchUpload", "404"}
_RESTARTS = 3
_READ = 1 << 20


@dataclass(frozen=True)
class Stored:
    """What lies in the store now; `sent` is how many bytes had to travel."""

    url: str
    size: int
    sha256: str
    sent: int


@dataclass
class Uploader:
    """Sends files to one store.

    Attributes:
        client: boto3's S3 client.
        part_size: bytes of a part, 5 MiB at least (S3's own limit).
        threads: parts on their way at the same time.
        patience: seconds that the store may stay away.
        state: folder that remembers uploads which have begun.
        on_bytes: called with how many more bytes are in the store.
    """

    client: Any
    part_size: int = PART
    threads: int = 4
    patience: float = PATIENCE
    state: Path = UPLOADS
    on_bytes: Callable[[int], None] = lambda _size: None

    def put(self, source: Path, url: str) -> Stored:
        """Store a file; nothing is sent when the same content is there already.

        Raises:
            InputError: the file is missing, changes meanwhile, or the store refuses it or stays away.
        """
        bucket, key = object_url(url)
        if not source.is_file():
            raise InputError(f"{source} is no file: name one that is there")
        digest = digest_file(source, self.part_size)
        sent = 0
        with explained(url, "written"):
            if not self._is_there(bucket, key, digest):
                send = self._send_parts if digest.is_multipart else self._send_whole
                sent = send(source, url, digest)
                self._verify(url, digest)
            else:
                self.on_bytes(digest.size)
        return Stored(url, digest.size, digest.sha256, sent)

    def _head(self, bucket: str, key: str) -> dict[str, Any]:
        head = patiently(lambda: self.client.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED"), self.patience)
        return cast(dict[str, Any], head)

    def _is_there(self, bucket: str, key: str, digest: FileDigest) -> bool:
        try:
            head = self._head(bucket, key)
        except ClientError as error:
            if fault_code(error) == "404":
                return False
            raise
        return (head["ContentLength"], head["Metadata"].get(SHA256)) == (digest.size, digest.sha256)

    def _send_whole(self, source: Path, url: str, digest: FileDigest) -> int:
        bucket, key = object_url(url)
        body = digest.read_part(source, 1)
        metadata = {SHA256: digest.sha256}
        patiently(
            lambda: self.client.put_object(
                Bucket=bucket, Key=key, Body=body, ChecksumSHA256=digest.part(1), Metadata=metadata
            ),
            self.patience,
        )
        self.on_bytes(digest.size)
        return digest.size

    def _send_parts(self, source: Path, url: str, digest: FileDigest) -> int:
        sent = 0
        with upload_state(self.state, self.client.meta.endpoint_url, url) as state:
            for restart in range(_RESTARTS):
                begun = self._begin(url, digest, state)
                try:
                    upload = Multipart(self.client, source, digest, begun, self.patience)
                    sent += upload.send_missing(self.threads, self.on_bytes)
                    upload.complete()
                    break
                except ClientError as error:
                    # The store has forgotten the upload, or has completed it before its answer got lost.
                    if fault_code(error) not in _LOST or restart == _RESTARTS - 1:
                        raise
                    state.clear()
                    if self._is_there(*object_url(url), digest):
                        break
            state.clear()
        return sent

    def _begin(self, url: str, digest: FileDigest, state: UploadState) -> Begun:
        bucket, key = object_url(url)
        begun = state.load()
        if begun is not None and begun.fits(digest):
            return begun
        if begun is not None:
            self._abort(bucket, key, begun.upload_id)
        answer = patiently(
            lambda: self.client.create_multipart_upload(
                Bucket=bucket, Key=key, ChecksumAlgorithm="SHA256", Metadata={SHA256: digest.sha256}
            ),
            self.patience,
        )
        return state.begin(str(answer["UploadId"]), digest)

    def _abort(self, bucket: str, key: str, upload_id: str) -> None:
        try:
            self.client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id)
        except ClientError as error:
            if fault_code(error) not in _LOST:
                raise

    def _verify(self, url: str, digest: FileDigest) -> None:
        """Compare what the store says of the whole object, or the object itself where it says nothing."""
        head = self._head(*object_url(url))
        same = head["ContentLength"] == digest.size
        if same and "ChecksumSHA256" in head:
            # Stores differ in whether they append the number of parts.
            same = head["ChecksumSHA256"].partition("-")[0] == digest.checksum.partition("-")[0]
        elif same and head["ETag"] != digest.etag:
            # An ETag need not be a digest (encryption with keys of one's own), so only equality says something.
            with io.BufferedReader(ObjectReader(self.client, url), _READ) as stream:
                same = stream_hash(cast(BinaryIO, stream)) == digest.sha256
        if not same:
            raise InputError(f"{url} does not hold what was sent: another process wrote it too, or the store is broken")
