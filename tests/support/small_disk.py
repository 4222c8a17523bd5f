"""A disk that a test can fill up and make room on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_BLOCK = 1 << 12


@dataclass(frozen=True)
class SmallDisk:
    """A folder on a file system of its own; `real` is false where none can be mounted.

    There a full disk is a process that may not write long files: see `WarmStage`, argument `longest`.
    """

    folder: Path
    real: bool

    @property
    def reason(self) -> str:
        """The system's error when the disk is full."""
        return "No space left on device" if self.real else "File too large"

    def fill(self, leave: int = 0) -> None:
        if not self.real:
            return
        with self._ballast.open("ab", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(_BLOCK))
        os.truncate(self._ballast, max(0, self._ballast.stat().st_size - leave))

    def make_room(self) -> None:
        self._ballast.unlink(missing_ok=True)

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[SmallDisk]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    real = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield SmallDisk(folder, real)
    finally:
        if real:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
