"""Atomic files and folders, and content hashes."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import shutil
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from secrets import token_hex
from typing import Any

from safetensors import SafetensorError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# safetensors and NumPy report it only in words.
_FULL_IN_WORDS = re.compile(rf"\(os error ({'|'.join(map(str, _FULL))})\)|requested and \d+ written")


def full_disk(error: BaseException) -> int | None:
    """The error number if a disk or a quota has no room for a file, or the file is too long; else None."""
    if not isinstance(error, OSError | SafetensorError):
        return None
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno if error.errno in _FULL else None
    match = _FULL_IN_WORDS.search(str(error))
    return int(match[1] or errno.ENOSPC) if match else None


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Add the path to the error of a full disk, which libraries report without it."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        if (number := full_disk(error)) is None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`, which replaces `path` if the block succeeds.

    Raises:
        OSError: the disk is full (see `full_disk`), or the path is not writable.
    """
    with _naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _own_path(path)
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode
        try:
            yield temporary
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            # Some libraries ignore the umask, and make files that only their owner can read.
            temporary.chmod(mode)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `path`, which replaces `path` if the block succeeds; raises as `atomic_file`."""
    with _naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _own_path(path)
        temporary.mkdir()
        mode = temporary.stat().st_mode & 0o666
        aside = temporary.with_name(f"{temporary.name}.old")
        try:
            yield temporary
            for file in temporary.rglob("*"):
                if file.is_file() and not file.is_symlink():
                    file.chmod(file.stat().st_mode | mode)
            # Removing takes time; a process killed meanwhile would leave half of the old folder and no new one.
            if not _exchanged(temporary, path):
                if path.exists():
                    os.replace(path, aside)
                os.replace(temporary, path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            shutil.rmtree(aside, ignore_errors=True)


def _exchanged(first: Path, second: Path) -> bool:
    """Exchange two folders in one step; False if one is missing or the file system does not support it."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    here, exchange = -100, 2
    return rename is not None and rename(here, os.fsencode(first), here, os.fsencode(second), exchange) == 0


def _own_path(path: Path) -> Path:
    """A temporary path of this process next to `path`; temporary paths of dead processes are removed first.

    They would remain for ever, and DVC would add them to the outputs of a stage.
    """
    # Imported here: the training engine needs only packages that torch and open_clip need (research/measure/gpu.py).
    import psutil

    host = f".{path.name}.{socket.gethostname()}-"
    for left in path.parent.glob(f"{escape(host)}*"):
        process = left.name.removeprefix(host).partition(".")[0]
        if not process.isdecimal() or psutil.pid_exists(int(process)):
            continue
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)
    return path.with_name(f"{host}{os.getpid()}.{token_hex(4)}")


def write_json(path: Path, content: Any) -> None:
    """Write `content` as indented JSON, atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def image_id(image: bytes) -> str:
    """The id of a picture, independent of its file: the first 16 hexadecimal digits of the SHA-256 of its bytes."""
    return hashlib.sha256(image).hexdigest()[:16]


def content_hash(*parts: str | bytes) -> str:
    """SHA-256 over length-prefixed parts, so that different lists of parts do not collide."""
    return hash_of_all(parts)


def hash_of_all(parts: Iterable[str | bytes]) -> str:
    """`content_hash` of parts that are not all in memory."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode("utf-8") if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "big"))
        digest.update(raw)
    return digest.hexdigest()
