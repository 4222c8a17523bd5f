"""One multipart upload at work: what the store has already, what is missing, and the object made of all parts."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from components.core.storage.digest import FileDigest
from components.core.storage.faults import patiently
from components.core.storage.state import Begun
from components.core.storage.url import object_url


@dataclass(frozen=True)
class Multipart:
    """An upload that was begun for `digest`'s content; every request is repeated for `patience` seconds.

    Raises:
        ClientError: the store refuses it, or knows the upload no longer (`NoSuchUpload`).
        InputError: the file changes meanwhile.
    """

    client: Any
    source: Path
    digest: FileDigest
    begun: Begun
    patience: float
    _etags: dict[int, str] = field(default_factory=dict)

    def send_missing(self, threads: int, on_bytes: Callable[[int], None]) -> int:
        """Send the parts that the store has not, or has with other content; how many bytes that were."""
        self._etags.update(self._stored())
        on_bytes(sum(self._size(number) for number in self._etags))
        missing = [number for number in range(1, len(self.digest.parts) + 1) if number not in self._etags]
        with ThreadPoolExecutor(threads) as pool:
            tasks = {pool.submit(self._send, number): number for number in missing}
            try:
                for task in as_completed(tasks):
                    self._etags[tasks[task]] = task.result()
                    on_bytes(self._size(tasks[task]))
            finally:
                for task in tasks:
                    task.cancel()
        return sum(self._size(number) for number in missing)

    def complete(self) -> None:
        """Make the object appear, of exactly these parts."""
        parts = [
            {"PartNumber": number, "ETag": etag, "ChecksumSHA256": self.digest.part(number)}
            for number, etag in sorted(self._etags.items())
        ]
        self._ask("complete_multipart_upload", MultipartUpload={"Parts": parts})

    def _stored(self) -> dict[int, str]:
        """ETags of the parts that the store holds with our content."""
        found: dict[int, str] = {}
        marker = 0
        while True:
            page = self._ask("list_parts", PartNumberMarker=marker)
            found |= {part["PartNumber"]: part["ETag"] for part in page.get("Parts", []) if self._is_ours(part)}
            if not page.get("IsTruncated"):
                return found
            marker = page["NextPartNumberMarker"]

    def _is_ours(self, part: dict[str, Any]) -> bool:
        number = part["PartNumber"]
        if number > len(self.digest.parts) or part["Size"] != self._size(number):
            return False
        if "ChecksumSHA256" in part:
            return bool(part["ChecksumSHA256"] == self.digest.part(number))
        return bool(part["ETag"] == f'"{self.digest.md5s[number - 1].hex()}"')

    def _send(self, number: int) -> str:
        body = self.digest.read_part(self.source, number)
        answer = self._ask("upload_part", PartNumber=number, Body=body, ChecksumSHA256=self.digest.part(number))
        return str(answer["ETag"])

    def _ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        bucket, key = object_url(self.begun.url)
        call = getattr(self.client, operation)
        answer = patiently(
            lambda: call(Bucket=bucket, Key=key, UploadId=self.begun.upload_id, **arguments), self.patience
        )
        return cast(dict[str, Any], answer)

    def _size(self, number: int) -> int:
        return min(self.digest.part_size, self.digest.size - (number - 1) * self.digest.part_size)
