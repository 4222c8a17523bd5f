"""Uploads that have begun: what a later run needs to go on where an earlier one stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from components.core.errors import InputError
from components.core.files import content_hash, write_json
from components.core.storage.digest import FileDigest

UPLOADS = Path("state/uploads")


@dataclass(frozen=True)
class Begun:
    """A multipart upload in the store, and the content that it is for."""

    upload_id: str
    url: str
    sha256: str
    part_size: int

    def fits(self, digest: FileDigest) -> bool:
        """Whether it is an upload of this content, cut in the same places."""
        return (self.sha256, self.part_size) == (digest.sha256, digest.part_size)


@dataclass(frozen=True)
class UploadState:
    """The file that remembers the upload to one URL."""

    path: Path
    url: str

    def load(self) -> Begun | None:
        """The upload that was begun; None when there is none, or the file is damaged."""
        try:
            return Begun(**json.loads(self.path.read_text("utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def begin(self, upload_id: str, digest: FileDigest) -> Begun:
        """Remember a new upload."""
        begun = Begun(upload_id, self.url, digest.sha256, digest.part_size)
        write_json(self.path, asdict(begun))
        return begun

    def clear(self) -> None:
        """Forget it."""
        self.path.unlink(missing_ok=True)


@contextmanager
def upload_state(folder: Path, endpoint: str, url: str) -> Iterator[UploadState]:
    """The state of the upload to `url`, held by one process of this machine at a time.

    Raises:
        InputError: another process uploads to the same URL.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{content_hash(endpoint, url)[:24]}.json"
    try:
        with FileLock(path.with_suffix(".lock"), timeout=0):
            yield UploadState(path, url)
    except Timeout:
        raise InputError(f"{url} is being uploaded by another process: wait for it or stop it") from None
